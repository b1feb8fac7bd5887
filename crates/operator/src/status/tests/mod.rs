mod pods;
mod rollouts;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use lmetric_api::pool::{condition::condition, reason};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    apply::{Outcome, What},
    resources::{Applied, Resources},
    testing::{self, facts, pod, ready_status},
};

const FULL: &str = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.";

fn ready(name: &str) -> Arc<Pod> {
    Arc::new(pod(name, ready_status()))
}

fn waits(seconds: i64) -> Arc<Pod> {
    let mut pod = pod(
        "new",
        json!({"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL,
            "lastTransitionTime": testing::ago(seconds),
        }]}),
    );
    pod.spec.get_or_insert_default().node_name = None;
    Arc::new(pod)
}

fn deployment(replicas: i32, updated: i32, available: i32, total: i32) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "qwen-engine", "generation": 2, "annotations": {
            "lmetric.io/template-revision": "1", "lmetric.io/tool-image": "tool:1",
        }},
        "spec": {"replicas": replicas, "selector": {}, "template": {}},
        "status": {"observedGeneration": 2, "replicas": total, "updatedReplicas": updated, "availableReplicas": available},
    }))
    .expect("a deployment")
}

fn outcome(deployment: Deployment) -> Outcome {
    let mut applied = Resources::<Applied>::empty();
    applied.deployments.push(deployment);
    applied.services.push(
        serde_json::from_value(json!({"metadata": {"name": "qwen-envoy"}, "spec": {}})).expect("a service"),
    );
    Outcome {
        applied,
        troubles: Vec::new(),
    }
}

/// A pool of two engines that serves through its own Envoy.
fn serving() -> (Facts, Outcome) {
    let mut facts = facts(&json!({"replicas": 2, "gateway": {"standalone": {}}}));
    facts.engine_pods = vec![ready("a"), ready("b")];
    facts.picker_pods = vec![ready("p")];
    facts.envoy_pods = vec![ready("e")];
    (facts, outcome(deployment(2, 2, 2, 2)))
}

fn said(status: &InferencePoolStatus, kind: &str) -> (String, String, String) {
    let condition = status.condition(kind).expect("every condition is there");
    (
        condition.status.clone(),
        condition.reason.clone(),
        condition.message.clone(),
    )
}

fn of(facts: &Facts, outcome: &Outcome) -> InferencePoolStatus {
    compute(facts, &InferencePoolStatus::default(), Verdict::Applied(outcome)).status
}

#[test]
fn a_pool_that_serves_says_so_and_where() {
    let (facts, outcome) = serving();
    let report = compute(
        &facts,
        &InferencePoolStatus::default(),
        Verdict::Applied(&outcome),
    );
    let status = &report.status;
    let states: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| format!("{}={}/{}", condition.type_, condition.status, condition.reason))
        .collect();
    assert_eq!(
        states,
        [
            "Ready=True/Serving",
            "Available=True/AsExpected",
            "Progressing=False/Complete",
            "Degraded=False/AsExpected",
            "PickerReady=True/AsExpected",
            "RouteAccepted=Unknown/NoGateway",
        ]
    );
    assert_eq!(status.url.as_deref(), Some("http://qwen-envoy.models.svc"));
    assert_eq!(
        status.selector,
        "app.kubernetes.io/component=engine,lmetric.io/pool=qwen"
    );
    assert_eq!((status.replicas, status.ready_replicas, status.gpus), (2, 2, 2));
    assert_eq!(
        (status.template_revision, status.tool_image.as_deref()),
        (Some(1), Some("tool:1"))
    );
    assert_eq!((status.observed_generation, report.again), (Some(1), None));
}

#[test]
fn an_equal_look_gives_an_equal_status_later_too() {
    let (mut facts, outcome) = serving();
    let first = compute(
        &facts,
        &InferencePoolStatus::default(),
        Verdict::Applied(&outcome),
    )
    .status;
    facts.now = testing::time(-3_600).0;
    let later = compute(&facts, &first, Verdict::Applied(&outcome)).status;
    assert_eq!(first, later);
    let read: InferencePoolStatus =
        serde_json::from_value(serde_json::to_value(&first).expect("JSON")).expect("a status");
    assert_eq!(read, first, "what is read back is equal to what was written");
}

#[rstest]
#[case::picker(|facts: &mut Facts| facts.picker_pods.clear(), reason::PICKER_DOWN)]
#[case::envoy(|facts: &mut Facts| facts.envoy_pods.clear(), reason::ENVOY_DOWN)]
#[case::engines(|facts: &mut Facts| facts.engine_pods.clear(), reason::STARTING)]
#[case::full(|facts: &mut Facts| facts.engine_pods = vec![waits(60)], reason::INSUFFICIENT_GPU)]
fn a_part_that_is_missing_is_the_reason_of_not_being_ready(
    #[case] break_it: fn(&mut Facts),
    #[case] reason: &str,
) {
    let (mut facts, outcome) = serving();
    break_it(&mut facts);
    let (state, why, message) = said(&of(&facts, &outcome), condition::READY);
    assert_eq!((state.as_str(), why.as_str()), ("False", reason), "{message}");
}

#[test]
fn a_pod_that_ends_does_not_serve_and_is_counted_as_draining() {
    let (mut facts, outcome) = serving();
    let mut ending = pod("b", ready_status());
    ending.metadata.deletion_timestamp = Some(testing::time(-100));
    facts.engine_pods = vec![Arc::new(ending)];
    let report = compute(
        &facts,
        &InferencePoolStatus::default(),
        Verdict::Applied(&outcome),
    );
    let status = &report.status;
    assert_eq!(
        (
            status.replicas,
            status.ready_replicas,
            status.draining_replicas,
            status.gpus
        ),
        (0, 0, 1, 1)
    );
    assert_eq!(said(status, condition::READY).0, "False");
    assert!(report.again.is_some(), "an engine that ends is looked at again");
}

#[test]
fn zero_replicas_are_no_trouble() {
    let mut facts = facts(&json!({"replicas": 0}));
    facts.picker_pods = vec![ready("p")];
    let status = of(&facts, &outcome(deployment(0, 0, 0, 0)));
    assert_eq!(said(&status, condition::READY).1, reason::SCALED_TO_ZERO);
    assert_eq!(said(&status, condition::PROGRESSING).1, reason::COMPLETE);
    assert_eq!(said(&status, condition::DEGRADED).0, "False");
}

#[test]
fn a_pool_that_cannot_be_built_keeps_serving_and_names_the_field() {
    let (mut facts, outcome) = serving();
    facts.engines = Some(Arc::new(deployment(2, 2, 2, 2)));
    let before = of(&facts, &outcome);
    let words = "spec.placement.affinity holds nodeAfinity; check its spelling";
    let status = compute(&facts, &before, Verdict::Unbuildable(words)).status;
    let (state, why, message) = said(&status, condition::DEGRADED);
    assert_eq!((state.as_str(), why.as_str()), ("True", reason::INVALID_SPEC));
    assert!(
        message.starts_with(words) && message.contains("goes on"),
        "{message}"
    );
    assert_eq!(said(&status, condition::READY).0, "True");
    assert_eq!(status.template_revision, Some(1));
}

#[rstest]
#[case("Service", "True", "False")]
#[case("PodMonitor", "True", "True")]
fn a_conflict_is_told_and_only_an_essential_one_stops_serving(
    #[case] kind: &str,
    #[case] degraded: &str,
    #[case] ready: &str,
) {
    let (facts, mut outcome) = serving();
    outcome.troubles.push(Trouble {
        kind: kind.to_owned(),
        name: "qwen-envoy".to_owned(),
        what: What::Conflict,
    });
    let status = of(&facts, &outcome);
    let (state, why, message) = said(&status, condition::DEGRADED);
    assert_eq!((state.as_str(), why.as_str()), (degraded, reason::NAME_CONFLICT));
    assert!(message.contains(&format!("{kind} qwen-envoy")), "{message}");
    assert_eq!(said(&status, condition::READY).0, ready);
}

#[test]
fn rejected_pods_and_a_rollout_that_is_stuck_are_told_from_the_deployment() {
    let (mut facts, _) = serving();
    facts.engine_pods.clear();
    let mut rejecting = deployment(2, 0, 0, 0);
    let conditions = json!([
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: gpus"},
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"},
    ]);
    if let Some(status) = &mut rejecting.status {
        status.conditions = serde_json::from_value(conditions).ok();
    }
    let status = of(&facts, &outcome(rejecting));
    for kind in [condition::READY, condition::DEGRADED, condition::PROGRESSING] {
        let (_, why, message) = said(&status, kind);
        assert_eq!(why, reason::PODS_REJECTED, "{kind}");
        assert!(message.contains("exceeded quota"), "{kind}: {message}");
    }
}

#[test]
fn a_monitor_without_its_api_is_told_and_nothing_else_suffers() {
    let (mut facts, outcome) = serving();
    let pool = testing::pool(
        &json!({"replicas": 2, "gateway": {"standalone": {}}, "monitoring": {"podMonitor": true}}),
    );
    facts.pool = Arc::new(pool);
    let status = of(&facts, &outcome);
    assert_eq!(said(&status, condition::DEGRADED).1, reason::OPTIONAL_API_MISSING);
    assert_eq!(said(&status, condition::READY).0, "True");
}
