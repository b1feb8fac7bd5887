//! The cluster around a pool.

use std::sync::Arc;

use jiff::Timestamp;
use lmetric_api::{
    foreign::gateway::{Gateway, GatewaySpec},
    pool::InferencePool,
};
use lmetric_operator::{
    dereference::Facts,
    gateway::{Controller, Gateways, Parent, Seen},
    watch::{Apis, Reach},
};

/// `installed`: bit 0 all optional APIs, bits 1 and 2 who answers for the pool's Gateways.
pub(super) fn facts(pool: InferencePool, installed: u8) -> Facts {
    let all = installed & 1 != 0;
    let reach = if all { Reach::Cluster } else { Reach::Absent };
    let controllers = [Controller::EnvoyGateway, Controller::Istio, Controller::Other];
    let parents = pool
        .spec
        .gateway
        .parent_refs
        .iter()
        .enumerate()
        .map(|(at, reference)| {
            let controller = match installed >> 1 & 3 {
                // each another one
                3 => Some(controllers[at % controllers.len()]),
                same => controllers.get(usize::from(same)).copied(),
            };
            let seen = match controller {
                Some(controller) if all => Seen::Of {
                    gateway: Arc::new(gateway(&reference.name)),
                    controller,
                    policies: Some(Vec::new()),
                },
                _ => Seen::Absent,
            };
            Parent {
                reference: reference.clone(),
                namespace: reference.namespace.clone().unwrap_or_else(|| "models".to_owned()),
                seen,
            }
        });
    let gateways = Gateways {
        parents: parents.collect(),
        ..Gateways::default()
    };
    Facts {
        pool: Arc::new(pool),
        now: Timestamp::UNIX_EPOCH,
        apis: Apis {
            gie_pools: all,
            routes: all,
            pod_monitors: all,
            prometheus_rules: all,
            envoy_gateway: all,
            destination_rules: all,
            gateways: reach,
            gateway_classes: reach,
            client_policies: reach,
        },
        engines: None,
        replica_sets: Vec::new(),
        engine_pods: Vec::new(),
        picker_pods: Vec::new(),
        envoy_pods: Vec::new(),
        claim: None,
        gateways,
        volume_trouble: None,
        claim_trouble: None,
        last_ending: None,
    }
}

fn gateway(name: &str) -> Gateway {
    let mut gateway = Gateway::new(name, GatewaySpec::default());
    gateway.metadata.namespace = Some("models".to_owned());
    gateway
}
