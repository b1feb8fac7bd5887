use std::sync::Arc;

use lmetric_api::pool::{InferencePoolStatus, condition::condition};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    apply::Outcome,
    dereference::Facts,
    gateway::{
        Controller,
        testing::{gateways, of, with_policies},
    },
    resources::{Applied, Resources},
    status::{Verdict, compute},
    testing,
    watch::Apis,
};

const ALL: Apis = testing::ALL_APIS;

/// A pool that names the Gateway `g0` of namespace `edge`.
fn facts(seen: Seen, apis: Apis) -> Facts {
    let mut facts = testing::facts_with(
        &json!({"gateway": {"parentRefs": [{"name": "g0", "namespace": "edge"}]}, "networkPolicy": {"enabled": false}}),
        apis,
    );
    facts.gateways = gateways(vec![seen]);
    facts.gateways.parents[0].reference.namespace = Some("edge".to_owned());
    facts
}

fn said(facts: &Facts) -> (String, String, String) {
    let outcome = Outcome {
        applied: Resources::<Applied>::empty(),
        troubles: Vec::new(),
    };
    let status = compute(facts, &InferencePoolStatus::default(), Verdict::Applied(&outcome)).status;
    let condition = status.condition(condition::ROUTE_ACCEPTED).expect("is there");
    (
        condition.status.clone(),
        condition.reason.clone(),
        condition.message.clone(),
    )
}

fn answer(kind: &str, status: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "Why", "message": message, "lastTransitionTime": testing::ago(1)})
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

/// The route with one Gateway's conditions.
fn route(facts: &mut Facts, conditions: &[Value]) {
    let parent = json!({"parentRef": {"name": "g0", "namespace": "edge"}, "controllerName": "example.com/c", "conditions": conditions});
    facts.gateways.route = Some(read(
        json!({"metadata": {"name": "qwen"}, "spec": {}, "status": {"parents": [parent]}}),
    ));
}

#[test]
fn two_routes_are_one_answer() {
    let change = json!({"gateway": {"parentRefs": [{"name": "g0", "namespace": "edge"}, {"name": "g1", "namespace": "edge"}]}});
    let mut facts = testing::facts_with(&change, ALL);
    facts.gateways = gateways(vec![with_policies(&[good_policy()]), of(Controller::Other)]);
    let good = [answer("Accepted", "True", ""), answer("ResolvedRefs", "True", "")];
    route(&mut facts, &good);
    policies(
        &mut facts,
        &answer("Accepted", "True", ""),
        &answer("Accepted", "True", ""),
    );
    let (state, _, message) = said(&facts);
    assert_eq!(state, "Unknown");
    assert!(message.contains("edge/g1 has not answered"), "{message}");
    let second = |conditions: &[Value]| {
        let parent = json!({"parentRef": {"name": "g1", "namespace": "edge"}, "controllerName": "example.com/c", "conditions": conditions});
        read(json!({"metadata": {"name": "qwen-inference"}, "spec": {}, "status": {"parents": [parent]}}))
    };
    facts.gateways.second_route = Some(second(&good));
    assert_eq!(said(&facts).0, "True");
    facts.gateways.second_route = Some(second(&[answer("Accepted", "False", "no such listener")]));
    let (state, why, message) = said(&facts);
    assert_eq!((state.as_str(), why.as_str()), ("False", reason::NOT_ACCEPTED));
    assert!(message.contains("no such listener"), "{message}");
}

fn policies(facts: &mut Facts, extension: &Value, traffic: &Value) {
    let policy = |conditions: &Value| {
        let ancestor =
            json!({"ancestorRef": {"name": "g0"}, "controllerName": "envoy", "conditions": [conditions]});
        json!({"metadata": {"name": "qwen"}, "spec": {}, "status": {"ancestors": [ancestor]}})
    };
    facts.gateways.extension_policy = Some(read(policy(extension)));
    facts.gateways.traffic_policy = Some(read(policy(traffic)));
}

fn good_policy() -> Value {
    json!({
        "metadata": {"name": "clients", "namespace": "edge"},
        "spec": {
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}],
            "connection": {"bufferLimit": "64Mi"},
            "headers": {"earlyRequestHeaders": {"remove": ["x-gateway-destination-endpoint"]}},
        },
    })
}

#[rstest]
#[case::no_gateway(json!({}), Apis::default(), "Unknown", reason::NO_GATEWAY, "parentRefs is empty")]
#[case::no_routes(json!({"gateway": {"parentRefs": [{"name": "g"}]}}), Apis::default(), "False", reason::OPTIONAL_API_MISSING, "httproutes")]
#[case::no_envoy_gateway(json!({"gateway": {"parentRefs": [{"name": "g"}], "plug": "EnvoyGateway"}}), Apis {routes: true, ..Apis::default()}, "False", reason::OPTIONAL_API_MISSING, "install Envoy Gateway")]
#[case::no_gie(json!({"gateway": {"plug": "InferencePool"}}), Apis::default(), "False", reason::OPTIONAL_API_MISSING, "Inference Extension")]
#[case::gie_alone(json!({"gateway": {"plug": "InferencePool"}}), ALL, "Unknown", reason::NO_GATEWAY, "parentRefs is empty")]
fn what_is_not_installed_is_named_with_what_to_install(
    #[case] change: Value,
    #[case] apis: Apis,
    #[case] state: &str,
    #[case] reason: &str,
    #[case] words: &str,
) {
    let said = said(&testing::facts_with(&change, apis));
    assert_eq!((said.0.as_str(), said.1.as_str()), (state, reason));
    assert!(said.2.contains(words), "{}", said.2);
}

#[rstest]
#[case(Seen::Absent, "does not exist")]
#[case(Seen::Hidden, "spec.gateway.plug")]
fn a_gateway_that_cannot_be_seen_is_unknown_and_says_what_to_do(#[case] seen: Seen, #[case] words: &str) {
    let (state, why, message) = said(&facts(seen, ALL));
    assert_eq!((state.as_str(), why.as_str()), ("Unknown", reason::UNKNOWN));
    assert!(
        message.contains("edge/g0") && message.contains(words),
        "{message}"
    );
}

#[test]
fn the_gateways_own_words_are_told_about_the_route_and_gies_pool() {
    let mut facts = facts(of(Controller::Other), ALL);
    assert_eq!(said(&facts).0, "Unknown", "nobody has answered");
    let good = [answer("Accepted", "True", ""), answer("ResolvedRefs", "True", "")];
    route(&mut facts, &good);
    let (state, why, _) = said(&facts);
    assert_eq!((state.as_str(), why.as_str()), ("True", reason::ACCEPTED));
    route(&mut facts, &[answer("Accepted", "False", "hosts do not match")]);
    let (state, why, message) = said(&facts);
    assert_eq!((state.as_str(), why.as_str()), ("False", reason::NOT_ACCEPTED));
    assert!(
        message.contains("example.com/c does not take the HTTPRoute: hosts do not match"),
        "{message}"
    );
    route(&mut facts, &good);
    let parent = json!({"parentRef": {"name": "g0"}, "controllerName": "c", "conditions": [answer("ResolvedRefs", "False", "no picker")]});
    facts.gateways.gie_pool = Some(read(json!({
        "metadata": {"name": "qwen"}, "status": {"parents": [parent]},
        "spec": {"selector": {"matchLabels": {}}, "targetPorts": [], "endpointPickerRef": {"name": "p"}},
    })));
    let (_, why, message) = said(&facts);
    assert_eq!(why, reason::NOT_ACCEPTED);
    assert!(message.contains("GIE's InferencePool: no picker"), "{message}");
}

#[test]
fn a_gateway_that_is_not_at_work_takes_no_route() {
    let mut facts = facts(of(Controller::Other), ALL);
    route(&mut facts, &[answer("Accepted", "True", "")]);
    let mut down = crate::gateway::testing::gateway();
    let status = json!({"conditions": [answer("Programmed", "False", "no address left")]});
    down.status = serde_json::from_value(status).unwrap();
    facts.gateways.parents[0].seen = Seen::Of {
        gateway: Arc::new(down),
        controller: Controller::Other,
        policies: None,
    };
    let (state, _, message) = said(&facts);
    assert_eq!(state, "False");
    assert!(
        message.contains("Gateway edge/g0 is not at work: no address left"),
        "{message}"
    );
}

#[test]
fn the_policy_that_a_gateway_lacks_ends_the_message_as_yaml() {
    let mut facts = facts(with_policies(&[]), ALL);
    let mut open = (*facts.pool).clone();
    open.spec.network_policy.enabled = true;
    facts.pool = Arc::new(open);
    let (state, why, message) = said(&facts);
    assert_eq!(
        (state.as_str(), why.as_str()),
        ("False", reason::GATEWAY_POLICY_MISSING)
    );
    assert!(message.contains("spec.networkPolicy.gatewayFrom"), "{message}");
    let yaml = &message[message.find("apiVersion:").expect("has YAML")..];
    let policy: Value = serde_yaml::from_str(yaml).unwrap();
    facts.gateways.parents[0].seen = with_policies(&[policy]);
    assert_ne!(
        said(&facts).1,
        reason::GATEWAY_POLICY_MISSING,
        "once it is applied"
    );
    assert!(message.len() < 2_000, "{}", message.len());
}

#[test]
fn envoy_gateway_must_take_its_policies_as_well() {
    let mut facts = facts(with_policies(&[good_policy()]), ALL);
    route(&mut facts, &[answer("Accepted", "True", "")]);
    let (state, _, message) = said(&facts);
    assert_eq!(state, "Unknown");
    assert!(message.contains("EnvoyExtensionPolicy"), "{message}");
    let good = answer("Accepted", "True", "");
    policies(&mut facts, &good, &good);
    assert_eq!(said(&facts).0, "True");
    policies(
        &mut facts,
        &answer("Accepted", "False", "Backend is disabled"),
        &good,
    );
    let (state, why, message) = said(&facts);
    assert_eq!((state.as_str(), why.as_str()), ("False", reason::NOT_ACCEPTED));
    assert!(message.contains("extensionApis.enableBackend"), "{message}");
    policies(&mut facts, &good, &answer("Accepted", "False", "no such field"));
    assert!(said(&facts).2.contains("the BackendTrafficPolicy: no such field"));
}

#[test]
fn policies_that_cannot_be_read_do_not_stop_the_pool_and_are_told() {
    let mut facts = facts(of(Controller::EnvoyGateway), ALL);
    route(&mut facts, &[answer("Accepted", "True", "")]);
    let good = answer("Accepted", "True", "");
    policies(&mut facts, &good, &good);
    let (state, _, message) = said(&facts);
    assert_eq!(state, "True");
    assert!(
        message.contains("connection.bufferLimit is at least 64Mi"),
        "{message}"
    );
}

#[test]
fn each_of_several_gateways_must_answer() {
    let mut facts = facts(of(Controller::Other), ALL);
    route(&mut facts, &[answer("Accepted", "True", "")]);
    let mut second = facts.gateways.parents[0].clone();
    second.reference.name = "g1".to_owned();
    facts.gateways.parents.push(second);
    let (state, _, message) = said(&facts);
    assert_eq!(state, "Unknown");
    assert!(message.contains("edge/g1"), "{message}");
}

#[rstest]
#[case(json!([]), None, "http://192.0.2.1")]
#[case(json!(["*.example.com"]), Some("https"), "https://192.0.2.1")]
#[case(json!(["*.example.com", "llm.example.com"]), Some("https"), "https://llm.example.com")]
#[case(json!(["llm.example.com"]), Some("gone"), "http://llm.example.com")]
fn the_url_is_a_host_of_the_route_or_the_gateways_address(
    #[case] hosts: Value,
    #[case] section: Option<&str>,
    #[case] url: &str,
) {
    let mut facts = facts(of(Controller::Other), ALL);
    let mut pool = (*facts.pool).clone();
    pool.spec.gateway.hostnames = serde_json::from_value(hosts).unwrap();
    facts.pool = Arc::new(pool);
    facts.gateways.parents[0].reference.section_name = section.map(str::to_owned);
    let mut gateway = crate::gateway::testing::gateway();
    gateway.status = serde_json::from_value(json!({"addresses": [{"value": "192.0.2.1"}]})).unwrap();
    facts.gateways.parents[0].seen = Seen::Of {
        gateway: Arc::new(gateway),
        controller: Controller::Other,
        policies: None,
    };
    assert_eq!(facts_url(&facts), None, "nobody takes the route");
    let parent = json!({
        "parentRef": {"name": "g0", "namespace": "edge", "sectionName": section}, "controllerName": "c",
        "conditions": [answer("Accepted", "True", "")],
    });
    facts.gateways.route = Some(read(
        json!({"metadata": {"name": "qwen"}, "spec": {}, "status": {"parents": [parent]}}),
    ));
    assert_eq!(facts_url(&facts).as_deref(), Some(url));
}

fn facts_url(facts: &Facts) -> Option<String> {
    let outcome = Outcome {
        applied: Resources::<Applied>::empty(),
        troubles: Vec::new(),
    };
    compute(facts, &InferencePoolStatus::default(), Verdict::Applied(&outcome))
        .status
        .url
}
