//! Engines that wait for what others hold, and rollouts that are halfway.

use super::*;

fn degraded(facts: &Facts) -> (String, String) {
    let (_, outcome) = serving();
    let (_, why, message) = said(&of(facts, &outcome), condition::DEGRADED);
    (why, message)
}

fn with_rollout(rollout: &serde_json::Value) -> Facts {
    let (mut facts, _) = serving();
    facts.pool = Arc::new(testing::pool(
        &json!({"replicas": 2, "gateway": {"standalone": {}}, "rollout": rollout}),
    ));
    facts
}

#[rstest]
#[case::just_now(3, reason::AS_EXPECTED)]
#[case::scheduler_had_its_time(6, reason::INSUFFICIENT_GPU)]
fn waiting_for_an_accelerator_is_trouble_after_a_few_seconds(#[case] waited: i64, #[case] reason: &str) {
    let mut facts = with_rollout(&json!({"strategy": "RollingUpdate", "maxSurge": 1, "maxUnavailable": 0}));
    facts.engine_pods = vec![ready("a"), waits(waited)];
    assert_eq!(degraded(&facts).0, reason);
}

#[test]
fn a_wait_is_judged_again_just_when_it_has_lasted_too_long() {
    let mut facts = with_rollout(&json!({"strategy": "Recreate"}));
    facts.engine_pods = vec![ready("a"), waits(2)];
    let (_, outcome) = serving();
    let report = compute(
        &facts,
        &InferencePoolStatus::default(),
        Verdict::Applied(&outcome),
    );
    assert_eq!(report.again, Some(Duration::from_secs(3)));
}

#[test]
fn a_rollout_that_may_only_surge_is_told_how_an_old_engine_can_go_first() {
    let remedy = "spec.rollout.strategy Auto, or maxSurge 0";
    let mut facts = with_rollout(&json!({"strategy": "RollingUpdate", "maxSurge": 1, "maxUnavailable": 0}));
    facts.engine_pods = vec![ready("a"), waits(40)];
    let (_, message) = degraded(&facts);
    assert!(message.contains(remedy), "{message}");
    facts.engine_pods = vec![ready("new"), waits(40)];
    let (why, message) = degraded(&facts);
    assert_eq!(why, reason::INSUFFICIENT_GPU);
    assert!(
        !message.contains(remedy),
        "no old engine is there to go: {message}"
    );
}

#[rstest]
#[case::it_may_still_surge(29, reason::AS_EXPECTED)]
#[case::an_old_one_is_about_to_go(31, reason::AS_EXPECTED)]
#[case::and_did_not(36, reason::INSUFFICIENT_GPU)]
fn an_auto_rollout_waits_for_an_accelerator_and_then_for_an_old_engine(
    #[case] waited: i64,
    #[case] reason: &str,
) {
    let (mut facts, _) = serving();
    facts.engine_pods = vec![ready("a"), waits(waited)];
    assert_eq!(degraded(&facts).0, reason);
}

#[test]
fn an_auto_pool_that_cannot_give_up_an_old_engine_says_so_at_once() {
    let (mut facts, _) = serving();
    facts.engine_pods = vec![ready("new"), waits(6)];
    assert_eq!(degraded(&facts).0, reason::INSUFFICIENT_GPU);
}

#[test]
fn waiting_for_the_accelerators_of_an_engine_that_ends_or_has_just_ended_is_no_trouble() {
    let mut facts = with_rollout(&json!({"strategy": "RollingUpdate"}));
    let mut ending = pod("b", ready_status());
    ending.metadata.deletion_timestamp = Some(testing::time(-100));
    facts.engine_pods = vec![ready("a"), waits(60), Arc::new(ending)];
    assert_eq!(degraded(&facts).0, reason::AS_EXPECTED);
    facts.engine_pods.pop();
    facts.last_ending = Some(testing::time(1).0);
    assert_eq!(
        degraded(&facts).0,
        reason::AS_EXPECTED,
        "the scheduler has its time"
    );
    facts.last_ending = Some(testing::time(6).0);
    assert_eq!(degraded(&facts).0, reason::INSUFFICIENT_GPU);
}

#[test]
fn engines_of_the_old_template_are_not_counted_as_new_ones() {
    let (mut facts, _) = serving();
    facts.engine_pods = vec![ready("old"), ready("new")];
    let mut halfway = deployment(2, 1, 2, 3);
    let revision = "deployment.kubernetes.io/revision";
    halfway
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(revision.to_owned(), "2".to_owned());
    let set = json!({
        "metadata": {"labels": {"pod-template-hash": "new"}, "annotations": {revision: "2"}}, "spec": {"selector": {}},
    });
    facts.replica_sets = vec![Arc::new(serde_json::from_value(set).expect("a replica set"))];
    let (_, why, message) = said(&of(&facts, &outcome(halfway.clone())), condition::PROGRESSING);
    assert_eq!(why, reason::ROLLING_OUT);
    assert_eq!(
        message,
        "1 of 2 engines are of the current template, 1 of these ready; 2 ready in all"
    );
    facts.engine_pods = vec![ready("old")];
    let (_, _, message) = said(&of(&facts, &outcome(halfway)), condition::PROGRESSING);
    assert!(message.contains("0 of these ready; 1 ready in all"), "{message}");
}
