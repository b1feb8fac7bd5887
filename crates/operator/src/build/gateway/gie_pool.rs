//! GIE's InferencePool of the same name: how Gateways find engines and picker.

use lmetric_api::{
    foreign::gie::{EndpointPickerRef, InferencePool, InferencePoolSpec, Selector, TargetPort},
    pool::Component,
};

use crate::{
    build::{BuildError, meta, ports},
    validated::Validated,
};

/// Ports that GIE's object can name.
const MAX_PORTS: i32 = 8;

/// GIE's object.
pub(in crate::build) fn build(validated: &Validated) -> Result<InferencePool, BuildError> {
    let spec = &validated.pool.spec;
    let http = ports::http(spec);
    let ext_proc = if validated.way_in.listeners.tls() {
        ports::EXT_PROC_TLS
    } else {
        ports::EXT_PROC
    };
    if http.count > MAX_PORTS {
        return Err(BuildError::TooManyRanks(http.count));
    }
    Ok(InferencePool {
        metadata: meta::of_pool(validated),
        spec: InferencePoolSpec {
            selector: Selector {
                match_labels: meta::selector_labels(validated, Component::Engine),
            },
            target_ports: http.each().map(|(_, number)| TargetPort { number }).collect(),
            app_protocol: None,
            endpoint_picker_ref: EndpointPickerRef {
                name: super::picker_service(validated),
                port: Some(TargetPort { number: ext_proc }),
                failure_mode: Some(spec.routing.failure_mode.as_str().to_owned()),
                ..EndpointPickerRef::default()
            },
        },
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{build::testing, validated::Listeners};

    #[test]
    fn gateways_are_shown_every_rank_and_the_picker() {
        let validated =
            testing::pool(json!({"parallelism": {"data": 2}, "routing": {"failureMode": "FailOpen"}}));
        let pool = build(&validated).unwrap();
        assert_eq!(pool.metadata.name.as_deref(), Some("qwen"));
        assert_eq!(
            serde_json::to_value(pool.spec).unwrap(),
            json!({
                "selector": {"matchLabels": {"app.kubernetes.io/component": "engine", "lmetric.io/pool": "qwen"}},
                "targetPorts": [{"number": 8000}, {"number": 8001}],
                "endpointPickerRef": {"name": "qwen-ext-proc", "port": {"number": 9002}, "failureMode": "FailOpen"},
            })
        );
    }

    #[test]
    fn gateways_ask_over_tls_where_the_picker_serves_it() {
        let mut validated = testing::pool(json!({}));
        for (listeners, port) in [
            (Listeners::Both, 9004),
            (Listeners::Tls, 9004),
            (Listeners::Plaintext, 9002),
        ] {
            validated.way_in.listeners = listeners;
            let reference = build(&validated).unwrap().spec.endpoint_picker_ref;
            assert_eq!(reference.port, Some(TargetPort { number: port }));
        }
    }

    #[test]
    fn more_ranks_than_gie_can_name_are_an_error_with_a_remedy() {
        let validated =
            testing::pool(json!({"parallelism": {"data": 9}, "accelerator": {"gpusPerNode": 16}}));
        let error = build(&validated).unwrap_err().to_string();
        assert!(
            error.contains("parallelism.data") && error.contains("standalone"),
            "{error}"
        );
    }
}
