use rstest::rstest;

use super::*;
use crate::gateway::{
    Seen,
    testing::{gateway, gateways, policy},
};

fn parent(section: Option<&str>) -> Parent {
    let mut parent = gateways(vec![Seen::Absent]).parents.remove(0);
    parent.reference.section_name = section.map(str::to_owned);
    parent
}

/// A good policy for the whole Gateway with changes of its `spec`.
fn good(change: &Value) -> Value {
    let mut policy = json!({
        "metadata": {"name": "clients", "namespace": "edge"},
        "spec": {
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}],
            "connection": {"bufferLimit": "64Mi"},
            "headers": {"earlyRequestHeaders": {"remove": ["X-Gateway-Destination-Endpoint"]}},
            "tls": {"minVersion": "1.2"},
        },
    });
    for (key, value) in change.as_object().expect("an object") {
        policy["spec"][key] = value.clone();
    }
    policy
}

fn found(policies: &[Value]) -> Option<Lack> {
    let policies: Vec<_> = policies.iter().map(policy).collect();
    lack(&parent(None), &gateway(), &policies)
}

fn read(yaml: &str) -> Value {
    serde_yaml::from_str(yaml).unwrap()
}

#[test]
fn a_gateway_without_a_policy_is_given_one_that_suffices() {
    let Some(Lack {
        words,
        yaml: Some(yaml),
    }) = found(&[])
    else {
        panic!("nothing is lacking");
    };
    assert!(
        words.contains("Gateway edge/public has no ClientTrafficPolicy"),
        "{words}"
    );
    let made = read(&yaml);
    assert_eq!(
        made["metadata"],
        json!({"name": "public-lmetric", "namespace": "edge"})
    );
    assert_eq!(found(&[made]), None, "once it is applied");
}

#[rstest]
#[case::good(json!({}), "")]
#[case::larger(json!({"connection": {"bufferLimit": "1Gi"}}), "")]
#[case::in_bytes(json!({"connection": {"bufferLimit": 67_108_864}}), "")]
#[case::by_labels(json!({"targetRefs": [], "targetSelectors": [{"kind": "Gateway", "matchLabels": {"team": "edge"}}]}), "")]
#[case::by_expression(json!({"targetRefs": [], "targetSelectors": [
    {"kind": "Gateway", "matchExpressions": [{"key": "team", "operator": "In", "values": ["edge", "core"]}]},
]}), "")]
#[case::older_form(json!({"targetRefs": [], "targetRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public"}}), "")]
#[case::small(json!({"connection": {"bufferLimit": "60M"}}), "smaller bodies")]
#[case::unset(json!({"connection": {}}), "smaller bodies")]
#[case::header(json!({"headers": {"earlyRequestHeaders": {"remove": ["x-other"]}}}), "does not remove")]
#[case::late(json!({"headers": {"lateRequestHeaders": {"remove": ["x-gateway-destination-endpoint"]}}}), "does not remove")]
#[case::other_gateway(json!({"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "else"}]}), "has no ClientTrafficPolicy")]
#[case::one_listener(json!({"targetRefs": [
    {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public", "sectionName": "http"},
]}), "has no ClientTrafficPolicy")]
#[case::other_labels(json!({"targetRefs": [], "targetSelectors": [{"kind": "Gateway", "matchLabels": {"team": "core"}}]}), "has no ClientTrafficPolicy")]
fn every_listener_must_obey_a_policy_that_suffices(#[case] change: Value, #[case] words: &str) {
    match found(&[good(&change)]) {
        None => assert_eq!(words, ""),
        Some(lack) => assert!(!words.is_empty() && lack.words.contains(words), "{}", lack.words),
    }
}

#[test]
fn what_is_mended_keeps_what_its_owner_wrote_and_suffices() {
    let mut theirs = good(&json!({
        "connection": {"bufferLimit": "1Mi", "connectionLimit": {"value": 9}},
        "headers": {"enableEnvoyHeaders": true, "earlyRequestHeaders": {"remove": ["x-a"], "add": [{"name": "b", "value": "c"}]}},
    }));
    theirs["metadata"]["labels"] = json!({"owner": "edge"});
    theirs["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "n"});
    let mended = read(
        &found(std::slice::from_ref(&theirs))
            .and_then(|lack| lack.yaml)
            .unwrap(),
    );
    assert_eq!(mended["metadata"]["labels"], json!({"owner": "edge"}));
    assert_eq!(mended["metadata"]["annotations"], json!({"note": "n"}));
    assert_eq!(
        mended["spec"],
        good(&json!({
            "connection": {"bufferLimit": "64Mi", "connectionLimit": {"value": 9}},
            "headers": {"enableEnvoyHeaders": true, "earlyRequestHeaders": {
                "remove": ["x-a", "x-gateway-destination-endpoint"], "add": [{"name": "b", "value": "c"}],
            }},
        }))["spec"]
    );
    assert_eq!(found(&[mended]), None, "once it is applied");
}

#[test]
fn a_policy_for_one_listener_stands_above_that_of_the_gateway() {
    let mut one = good(&json!({"connection": {}}));
    one["metadata"]["name"] = json!("one");
    one["spec"]["targetRefs"][0]["sectionName"] = json!("https");
    let policies: Vec<_> = [good(&json!({})), one].iter().map(policy).collect();
    let of = |section: &str| lack(&parent(Some(section)), &gateway(), &policies);
    assert_eq!(of("http"), None);
    assert!(of("https").unwrap().words.contains("edge/one"));
}

#[test]
fn of_two_the_older_counts_and_one_in_conflict_never() {
    let mut bad = good(&json!({"connection": {}}));
    bad["metadata"]["name"] = json!("second");
    bad["metadata"]["creationTimestamp"] = json!("2026-11-30T12:00:00Z");
    let mut first = good(&json!({}));
    first["metadata"]["creationTimestamp"] = json!("2026-11-29T12:00:00Z");
    assert_eq!(found(&[bad.clone(), first.clone()]), None);
    let answer = |reason: &str| {
        json!({"ancestors": [{"ancestorRef": {"name": "public"}, "controllerName": "c", "conditions": [{
            "type": "Accepted", "status": "False", "reason": reason, "message": "words", "lastTransitionTime": "2026-11-30T12:00:00Z",
        }]}]})
    };
    bad["status"] = answer("Conflicted");
    assert_eq!(found(&[bad, first.clone()]), None);
    first["status"] = answer("Invalid");
    let lack = found(&[first]).unwrap();
    assert!(
        lack.words.contains("Invalid: words") && lack.yaml.is_none(),
        "{}",
        lack.words
    );
}

#[test]
fn a_name_that_is_taken_is_left_alone_and_what_is_too_long_is_told_in_words() {
    let mut other = good(
        &json!({"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "else"}]}),
    );
    other["metadata"]["name"] = json!("public-lmetric");
    let made = read(&found(&[other]).and_then(|lack| lack.yaml).unwrap());
    assert_eq!(made["metadata"]["name"], "public-lmetric-2");
    let long = good(&json!({"connection": {}, "tls": {"ciphers": vec!["X".repeat(100); 100]}}));
    let lack = found(&[long]).unwrap();
    assert!(lack.yaml.is_none() && lack.words.contains("connection.bufferLimit"));
}

#[rstest]
#[case("1Gi", Some(1 << 30))]
#[case("64M", Some(64_000_000))]
#[case("9", Some(9))]
#[case("1.5Gi", None)]
#[case("Gi", None)]
#[case("", None)]
fn quantities_are_whole(#[case] text: &str, #[case] expected: Option<u128>) {
    assert_eq!(bytes(text), expected);
}
