//! Istio's rule for the picker's port: TLS, whatever the certificate says, since the picker makes it at its start.
//!
//! Only for that one port: health and admin stay plaintext, also for clients in a mesh.

use lmetric_api::{
    foreign::istio::{
        ClientTls, DestinationRule, DestinationRuleSpec, PortSelector, PortTrafficPolicy, TrafficPolicy,
    },
    pool::Component,
};

use crate::{
    build::{meta, ports},
    validated::Validated,
};

/// The rule.
pub(in crate::build) fn build(validated: &Validated) -> DestinationRule {
    let tls = ClientTls {
        mode: "SIMPLE".to_owned(),
        insecure_skip_verify: Some(true),
    };
    DestinationRule {
        metadata: meta::of_component(validated, Component::Picker),
        spec: DestinationRuleSpec {
            host: super::picker_host(validated),
            traffic_policy: Some(TrafficPolicy {
                port_level_settings: vec![PortTrafficPolicy {
                    port: PortSelector {
                        number: ports::EXT_PROC_TLS,
                    },
                    tls: Some(tls),
                }],
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn only_the_port_of_ext_proc_speaks_tls() {
        assert_eq!(
            serde_json::to_value(build(&testing::pool(json!({}))).spec).unwrap(),
            json!({
                "host": "qwen-ext-proc.models.svc.cluster.local",
                "trafficPolicy": {"portLevelSettings": [
                    {"port": {"number": 9004}, "tls": {"mode": "SIMPLE", "insecureSkipVerify": true}},
                ]},
            })
        );
    }
}
