//! The HTTPRoute of somebody's Gateway, to GIE's InferencePool.

use lmetric_api::foreign::{
    gateway::{BackendRef, HTTPRoute, HttpRouteRule, HttpRouteSpec, HttpRouteTimeouts},
    gie,
};

use crate::{build::meta, gateway::second_route, validated::Validated};

/// The route.
pub(in crate::build) fn build(validated: &Validated) -> HTTPRoute {
    let gateway = &validated.pool.spec.gateway;
    let mut metadata = meta::of_pool(validated);
    if validated.way_in.envoy_gateway {
        metadata.name = Some(second_route(&validated.name));
    }
    HTTPRoute {
        metadata,
        spec: HttpRouteSpec {
            parent_refs: validated.parents.gie.clone(),
            hostnames: gateway.hostnames.clone(),
            rules: vec![HttpRouteRule {
                matches: gateway.matches.clone(),
                backend_refs: vec![BackendRef {
                    group: Some(gie::GROUP.to_owned()),
                    kind: Some("InferencePool".to_owned()),
                    name: validated.name.clone(),
                    ..BackendRef::default()
                }],
                // a long answer takes minutes
                timeouts: Some(HttpRouteTimeouts {
                    request: Some("0s".to_owned()),
                    ..HttpRouteTimeouts::default()
                }),
                ..HttpRouteRule::default()
            }],
        },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn the_route_is_the_pools_and_leads_to_gies_object_without_a_timeout() {
        let validated = testing::pool(json!({"gateway": {
            "parentRefs": [{"name": "public", "namespace": "gateways"}],
            "hostnames": ["llm.example.com"],
            "matches": [{"path": {"value": "/v1"}}],
        }}));
        assert_eq!(
            serde_json::to_value(build(&validated).spec).unwrap(),
            json!({
                "parentRefs": [{"name": "public", "namespace": "gateways"}],
                "hostnames": ["llm.example.com"],
                "rules": [{
                    "matches": [{"path": {"type": "PathPrefix", "value": "/v1"}}],
                    "backendRefs": [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "qwen"}],
                    "timeouts": {"request": "0s"},
                }],
            })
        );
    }
}
