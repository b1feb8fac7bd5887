use serde_json::json;

use super::*;
use crate::{build::testing, validated::Listeners};

fn pool(mode: &str, matches: &Value) -> Validated {
    testing::pool(json!({
        "gateway": {"parentRefs": [{"name": "public"}], "hostnames": ["llm.example.com"], "matches": matches},
        "routing": {"failureMode": mode},
    }))
}

#[test]
fn a_request_without_a_pick_gets_503_and_one_with_a_pick_goes_to_the_engines_without_a_timeout() {
    let header =
        json!({"type": "RegularExpression", "name": "x-gateway-destination-endpoint", "value": ".+"});
    let path = json!({"type": "PathPrefix", "value": "/"});
    assert_eq!(
        serde_json::to_value(route(&pool("FailClose", &json!([]))).spec).unwrap(),
        json!({
            "parentRefs": [{"name": "public"}],
            "hostnames": ["llm.example.com"],
            "rules": [
                {
                    "matches": [{"path": path, "headers": [header]}],
                    "backendRefs": [{"name": "qwen-engine", "port": 8000}],
                    "timeouts": {"request": "0s"},
                },
                {
                    "matches": [{"path": path}],
                    "filters": [{"type": "ExtensionRef", "extensionRef": {
                        "group": "gateway.envoyproxy.io", "kind": "HTTPRouteFilter", "name": "qwen",
                    }}],
                },
            ],
        })
    );
    let answer = filter(&pool("FailClose", &json!([])))
        .unwrap()
        .spec
        .direct_response
        .unwrap();
    assert_eq!(
        (answer.status_code, answer.content_type.as_deref()),
        (503, Some("application/json"))
    );
    let body: Value = serde_json::from_str(&answer.body.unwrap().inline.unwrap()).unwrap();
    assert_eq!(body["error"]["code"], 503);
}

#[test]
fn every_match_of_the_pool_has_its_twin_that_asks_for_the_pick() {
    let matches = json!([
        {"path": {"value": "/v1"}},
        {"headers": [{"name": "x-tenant", "value": "a"}], "method": "POST"},
    ]);
    let rules = route(&pool("FailClose", &matches)).spec.rules;
    let (picked, refused) = (&rules[0].matches, &rules[1].matches);
    assert_eq!((picked.len(), refused.len()), (2, 2));
    for (with, without) in picked.iter().zip(refused) {
        assert_eq!((&with.path, &with.method), (&without.path, &without.method));
        assert_eq!(with.headers[..without.headers.len()], without.headers[..]);
        assert_eq!(with.headers.len(), without.headers.len() + 1);
    }
}

#[test]
fn fail_open_sends_what_no_picker_decided_to_any_engine() {
    let validated = pool("FailOpen", &json!([]));
    let rules = serde_json::to_value(route(&validated).spec.rules).unwrap();
    assert_eq!(
        rules,
        json!([{
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "backendRefs": [{"name": "qwen-engine", "port": 8000}],
            "timeouts": {"request": "0s"},
        }])
    );
    assert_eq!(filter(&validated), None);
}

#[test]
fn every_rank_is_a_backend() {
    let rules = route(&testing::pool(json!({"parallelism": {"data": 2}})))
        .spec
        .rules;
    let ports: Vec<_> = rules[0].backend_refs.iter().map(|backend| backend.port).collect();
    assert_eq!(ports, [Some(8000), Some(8001)]);
}

#[test]
fn the_processor_sees_the_body_and_lets_go_and_answers_survive_it_in_either_mode() {
    for mode in ["FailClose", "FailOpen"] {
        let spec = serde_json::to_value(extension_policy(&pool(mode, &json!([]))).spec).unwrap();
        assert_eq!(
            spec["targetRefs"],
            json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "qwen"}])
        );
        let processor = &spec["extProc"][0];
        assert_eq!(
            processor["backendRefs"],
            json!([{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "qwen-picker"}])
        );
        assert_eq!(
            processor["processingMode"],
            json!({"request": {"body": "Buffered"}})
        );
        assert_eq!(
            (&processor["failOpen"], &processor["messageTimeout"]),
            (&json!(true), &json!("2s"))
        );
        assert_eq!(
            processor["backendSettings"]["retry"]["retryOn"]["triggers"],
            json!(["connect-failure", "refused-stream", "unavailable"])
        );
    }
}

#[test]
fn the_picker_is_asked_where_it_listens() {
    let endpoint = |listeners| {
        let mut validated = pool("FailClose", &json!([]));
        validated.way_in.listeners = listeners;
        serde_json::to_value(backend(&validated).spec).unwrap()
    };
    let fqdn = |port| json!([{"fqdn": {"hostname": "qwen-ext-proc.models.svc.cluster.local", "port": port}}]);
    assert_eq!(endpoint(Listeners::Both), json!({"endpoints": fqdn(9002)}));
    assert_eq!(
        endpoint(Listeners::Tls),
        json!({"endpoints": fqdn(9004), "tls": {"insecureSkipVerify": true}})
    );
}

#[test]
fn the_named_engine_overrides_the_load_balancer() {
    let spec = serde_json::to_value(traffic_policy(&pool("FailClose", &json!([]))).spec).unwrap();
    assert_eq!(
        spec["loadBalancer"],
        json!({
            "type": "LeastRequest",
            "endpointOverride": {"extractFrom": [{"header": "x-gateway-destination-endpoint"}]},
        })
    );
    assert_eq!(spec["circuitBreaker"]["maxParallelRequests"], 100_000);
    assert_eq!(
        spec["timeout"]["http"]["connectionIdleTimeout"], "4s",
        "less than vLLM's 5 s"
    );
    assert_eq!(spec["tcpKeepalive"]["probes"], 3);
}
