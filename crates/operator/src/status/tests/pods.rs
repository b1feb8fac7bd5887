//! What single pods, and pods that cannot be made, do to a status.

use super::*;

#[test]
fn a_lost_node_is_told_before_the_accelerators_that_are_missing_without_it() {
    let (mut facts, outcome) = serving();
    let mut silent = ready_status();
    silent["conditions"][0]["status"] = json!("False");
    facts.engine_pods = vec![waits(60), Arc::new(pod("a", silent))];
    let status = of(&facts, &outcome);
    for kind in [condition::READY, condition::DEGRADED] {
        assert_eq!(said(&status, kind).1, reason::NODE_LOST, "{kind}");
    }
}

fn rejecting(name: &str, words: &str) -> Deployment {
    let mut rejecting = deployment(2, 0, 0, 0);
    rejecting.metadata.name = Some(name.to_owned());
    if let Some(status) = &mut rejecting.status {
        let failure =
            json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": words}]);
        status.conditions = serde_json::from_value(failure).ok();
    }
    rejecting
}

#[rstest]
#[case::quota("exceeded quota: gpus", "kubectl get resourcequota")]
#[case::quota_of_what("exceeded quota: gpus", "lower spec.replicas or spec.resources")]
#[case::limits(
    "maximum memory usage per Container is 64Mi, but limit is 128Gi",
    "fit spec.resources to"
)]
#[case::security(
    "violates PodSecurity \"restricted:latest\"",
    "pod-security.kubernetes.io/enforce"
)]
#[case::priority(
    "no PriorityClass with name first was found",
    "create that PriorityClass, or correct spec.placement.priorityClassName"
)]
#[case::runtime(
    "pod rejected: RuntimeClass \"nvidia\" not found",
    "create that RuntimeClass, or correct spec.placement.runtimeClassName"
)]
#[case::account(
    "error looking up service account models/reader: serviceaccount \"reader\" not found",
    "create that ServiceAccount in this namespace, correct spec.serviceAccountName"
)]
#[case::webhook("admission webhook \"w\" denied the request", "webhook objects to")]
fn rejected_pods_come_with_the_remedy_of_what_rejects_them(#[case] words: &str, #[case] remedy: &str) {
    let (mut facts, _) = serving();
    facts.engine_pods.clear();
    facts.pool = Arc::new(testing::pool(&json!({"serviceAccountName": "reader"})));
    let words = format!("pods \"a\" is forbidden: {words}");
    let rejecting = rejecting("qwen-engine", &words);
    let (_, why, message) = said(&of(&facts, &outcome(rejecting)), condition::DEGRADED);
    assert_eq!(why, reason::PODS_REJECTED);
    assert!(
        message.contains(&words) && message.contains(remedy),
        "{remedy:?} is not in {message}"
    );
}

#[test]
fn an_account_that_the_pool_does_not_name_is_the_operators_to_make() {
    let (mut facts, _) = serving();
    facts.engine_pods.clear();
    let words =
        "error looking up service account models/qwen-engine: serviceaccount \"qwen-engine\" not found";
    let (_, _, message) = said(
        &of(&facts, &outcome(rejecting("qwen-engine", words))),
        condition::DEGRADED,
    );
    assert!(
        message.contains("makes that ServiceAccount again by itself"),
        "{message}"
    );
}

#[rstest]
#[case(1, Some(1))]
#[case(0, Some(2))]
#[case(2, None)]
#[case(-30, None)]
fn a_fresh_picker_counts_when_the_pools_envoy_has_asked_it(#[case] age: i64, #[case] again: Option<u64>) {
    let (mut facts, outcome) = serving();
    let mut status = ready_status();
    status["conditions"][0]["lastTransitionTime"] = testing::ago(age);
    facts.picker_pods = vec![Arc::new(pod("p", status))];
    let report = compute(
        &facts,
        &InferencePoolStatus::default(),
        Verdict::Applied(&outcome),
    );
    assert_eq!(report.again, again.map(Duration::from_secs));
    let (state, why, _) = said(&report.status, condition::READY);
    let expected = if again.is_some() {
        ("False", reason::STARTING)
    } else {
        ("True", reason::SERVING)
    };
    assert_eq!((state.as_str(), why.as_str()), expected);
    assert_eq!(said(&report.status, condition::PICKER_READY).0, "True");
}

#[test]
fn a_fresh_picker_counts_at_once_beside_an_older_one_or_without_an_envoy() {
    let (mut facts, outcome) = serving();
    let mut status = ready_status();
    status["conditions"][0]["lastTransitionTime"] = testing::ago(0);
    facts.picker_pods = vec![Arc::new(pod("new", status.clone())), ready("old")];
    assert_eq!(said(&of(&facts, &outcome), condition::READY).0, "True");
    facts.picker_pods = vec![Arc::new(pod("new", status))];
    facts.pool = Arc::new(testing::pool(&json!({"replicas": 2})));
    assert_eq!(said(&of(&facts, &outcome), condition::READY).0, "True");
}

#[test]
fn a_pod_without_a_running_container_is_looked_at_soon() {
    let (mut facts, outcome) = serving();
    facts.engine_pods = vec![ready("a"), waits(40)];
    let report = compute(
        &facts,
        &InferencePoolStatus::default(),
        Verdict::Applied(&outcome),
    );
    assert_eq!(report.again, Some(SOON));
}

#[rstest]
#[case::picker(Component::Picker)]
#[case::envoy(Component::Envoy)]
fn a_part_that_only_a_person_can_mend_degrades_a_pool_that_serves(#[case] part: Component) {
    let (mut facts, outcome) = serving();
    let mut stuck = waits(60);
    if let Some(pod) = Arc::get_mut(&mut stuck) {
        pod.metadata.name = Some(format!("qwen-{}-2", part.as_str()));
    }
    let pods = match part {
        Component::Picker => &mut facts.picker_pods,
        _ => &mut facts.envoy_pods,
    };
    pods.push(stuck);
    let status = of(&facts, &outcome);
    assert_eq!(said(&status, condition::READY).0, "True");
    let (degraded, why, message) = said(&status, condition::DEGRADED);
    assert_eq!(
        (degraded.as_str(), why.as_str()),
        ("True", reason::INSUFFICIENT_GPU)
    );
    assert!(message.contains(part.as_str()), "{message}");
}

#[test]
fn pickers_that_may_not_be_made_say_why() {
    let (mut facts, mut outcome) = serving();
    facts.picker_pods.clear();
    outcome
        .applied
        .deployments
        .push(rejecting("qwen-picker", "exceeded quota: pods"));
    let status = of(&facts, &outcome);
    assert_eq!(said(&status, condition::DEGRADED).1, reason::PODS_REJECTED);
    let (_, why, message) = said(&status, condition::READY);
    assert_eq!(why, reason::PICKER_DOWN);
    assert!(message.contains("lower spec.picker.replicas"), "{message}");
}

#[test]
fn a_route_without_its_apis_degrades_a_pool_that_serves_by_its_own_envoy() {
    let (mut facts, outcome) = serving();
    let both = json!({"replicas": 2, "gateway": {"standalone": {}, "parentRefs": [{"name": "g"}]}});
    facts.pool = Arc::new(testing::pool(&both));
    let status = of(&facts, &outcome);
    assert_eq!(said(&status, condition::READY).0, "True");
    assert_eq!(said(&status, condition::DEGRADED).1, reason::OPTIONAL_API_MISSING);
}
