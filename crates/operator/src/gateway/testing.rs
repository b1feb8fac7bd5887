//! Gateways for tests.

use std::sync::Arc;

use lmetric_api::foreign::{
    envoy_gateway::ClientTrafficPolicy,
    gateway::{Gateway, ParentReference},
};
use serde_json::{Value, json};

use super::{Controller, Gateways, Parent, Seen};

/// A Gateway `public` of namespace `edge` with the listeners `http` and `https`.
pub(crate) fn gateway() -> Gateway {
    serde_json::from_value(json!({
        "metadata": {"name": "public", "namespace": "edge", "labels": {"team": "edge"}},
        "spec": {"gatewayClassName": "c", "listeners": [
            {"name": "http", "port": 80, "protocol": "HTTP"},
            {"name": "https", "port": 443, "protocol": "HTTPS"},
        ]},
    }))
    .expect("a gateway")
}

/// A Gateway of that controller, whose policies may not be read.
pub(crate) fn of(controller: Controller) -> Seen {
    Seen::Of {
        gateway: Arc::new(gateway()),
        controller,
        policies: None,
    }
}

/// A Gateway of Envoy Gateway with these policies.
pub(crate) fn with_policies(policies: &[Value]) -> Seen {
    Seen::Of {
        gateway: Arc::new(gateway()),
        controller: Controller::EnvoyGateway,
        policies: Some(policies.iter().map(policy).collect()),
    }
}

/// A policy, from JSON.
pub(crate) fn policy(policy: &Value) -> Arc<ClientTrafficPolicy> {
    Arc::new(serde_json::from_value(policy.clone()).expect("a policy"))
}

/// Gateways `g0`, `g1` and so on.
pub(crate) fn gateways(seen: Vec<Seen>) -> Gateways {
    let parents = seen.into_iter().enumerate().map(|(at, seen)| Parent {
        reference: ParentReference {
            name: format!("g{at}"),
            ..ParentReference::default()
        },
        namespace: "edge".to_owned(),
        seen,
    });
    Gateways {
        parents: parents.collect(),
        ..Gateways::default()
    }
}
