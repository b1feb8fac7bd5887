use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::testing;

fn container(state: &Value, last: &Value, restarts: i32, started: bool) -> Value {
    json!({"containerStatuses": [{
        "name": "engine", "image": "vllm:1", "imageID": "", "ready": false, "started": started,
        "restartCount": restarts, "state": state, "lastState": last,
    }]})
}

fn waiting(why: &str, message: &str, last: &Value, restarts: i32) -> Value {
    container(
        &json!({"waiting": {"reason": why, "message": message}}),
        last,
        restarts,
        false,
    )
}

fn ended(code: i32, why: &str, lived: i64) -> Value {
    json!({"terminated": {
        "exitCode": code, "reason": why, "startedAt": testing::ago(lived + 5), "finishedAt": testing::ago(5),
    }})
}

fn unscheduled(message: &str) -> Value {
    json!({"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": testing::ago(40),
    }]})
}

fn running(seconds: i64, started: bool) -> Value {
    container(
        &json!({"running": {"startedAt": testing::ago(seconds)}}),
        &json!({}),
        0,
        started,
    )
}

fn lost_readiness() -> Value {
    let mut status = running(125, true);
    status["conditions"] =
        json!([{"type": "Ready", "status": "False", "lastTransitionTime": testing::ago(60)}]);
    status
}

#[rstest]
#[case(
    unscheduled("0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
    reason::INSUFFICIENT_GPU,
    "free nvidia.com/gpu"
)]
#[case(
    unscheduled("1 Insufficient cpu, 1 Insufficient nvidia.com/gpu."),
    reason::INSUFFICIENT_GPU,
    "lower spec.replicas"
)]
#[case(
    unscheduled("2 node(s) didn't match Pod's node affinity/selector."),
    reason::UNSCHEDULABLE,
    "spec.placement"
)]
#[case(
    unscheduled("persistentvolumeclaim \"m\" not found."),
    reason::VOLUME_PENDING,
    "look at claim c"
)]
#[case(
    unscheduled("pod has unbound immediate PersistentVolumeClaims."),
    reason::VOLUME_PENDING,
    "look at claim c"
)]
#[case(
    unscheduled("0/2 nodes are available: 2 node(s) had volume node affinity conflict."),
    reason::VOLUME_PENDING,
    "look at claim c"
)]
#[case(
    unscheduled("Scheduling is blocked due to non-empty scheduling gates"),
    reason::UNSCHEDULABLE,
    "scheduling gates"
)]
#[case(waiting("ImagePullBackOff", "Back-off pulling image", &json!({}), 0), reason::IMAGE_PULL, "correct spec.engine.image, or name a Secret that may pull it in spec.engine.pullSecrets")]
#[case(waiting("ErrImageNeverPull", "not present", &json!({}), 0), reason::IMAGE_PULL, "vllm:1")]
#[case(waiting("CreateContainerConfigError", "secret \"hf-token\" not found", &json!({}), 0), reason::SECRET_MISSING, "create the Secret")]
#[case(waiting("CreateContainerConfigError", "couldn't find key token in Secret n/hf", &json!({}), 0), reason::SECRET_MISSING, "with that key")]
#[case(waiting("CreateContainerConfigError", "configmap \"c\" not found", &json!({}), 0), reason::NOT_READY, "configmap")]
#[case(waiting("CrashLoopBackOff", "", &ended(1, "Error", 9), 4), reason::CRASH_LOOP, "exit code 1 (4 restarts)")]
#[case(waiting("CrashLoopBackOff", "", &ended(137, "OOMKilled", 9), 4), reason::OOM_KILLED, "raise spec.resources.memory")]
#[case(waiting("CrashLoopBackOff", "", &ended(137, "Error", 1_800), 2), reason::START_TIMEOUT, "startupTimeout")]
#[case(waiting("CrashLoopBackOff", "", &ended(137, "Error", 90), 2), reason::CRASH_LOOP, "exit code 137")]
#[case(waiting("CrashLoopBackOff", "", &ended(0, "Completed", 1_803), 2), reason::START_TIMEOUT, "startupTimeout")]
#[case(waiting("CrashLoopBackOff", "", &ended(137, "Error", 90_000), 2), reason::CRASH_LOOP, "exit code 137")]
#[case(waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", &json!({}), 0), reason::NOT_READY, "distroless")]
#[case(container(&ended(0, "Completed", 3), &json!({}), 0, false), reason::CRASH_LOOP, "exit code 0")]
#[case(container(&ended(2, "Error", 3), &json!({}), 0, false), reason::CRASH_LOOP, "exit code 2")]
#[case(container(&json!({"running": {"startedAt": testing::ago(3)}}), &ended(1, "Error", 9), 3, false), reason::CRASH_LOOP, "3 restarts")]
#[case(waiting("ContainerCreating", "", &json!({}), 0), reason::STARTING, "30 min")]
#[case(running(125, false), reason::STARTING, "2 min of at most 30 min")]
#[case(running(125, true), reason::STARTING, "not ready yet")]
#[case(running(1_900, true), reason::NOT_READY, "readiness probe")]
#[case(lost_readiness(), reason::NOT_READY, "readiness probe")]
#[case(json!({}), reason::STARTING, "is being made")]
fn each_state_has_its_reason_and_a_remedy(#[case] status: Value, #[case] reason: &str, #[case] words: &str) {
    let finding = examine(&testing::pod("p-engine-1", status), &testing::limits(None))
        .expect("something is the matter");
    assert_eq!(finding.reason, reason, "{}", finding.message);
    assert!(finding.message.contains(words), "{}", finding.message);
    assert!(finding.message.contains("p-engine-1"), "{}", finding.message);
}

#[rstest]
#[case("AttachVolume.Attach failed for volume", reason::VOLUME_ATTACH)]
#[case(
    "MountVolume.SetUp failed for volume \"t\" : secret \"hf\" not found",
    reason::SECRET_MISSING
)]
fn events_tell_why_a_pod_waits_for_its_volumes(#[case] words: &str, #[case] reason: &str) {
    let mut status = waiting("ContainerCreating", "", &json!({}), 0);
    status["conditions"] =
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": testing::ago(30)}]);
    let pod = testing::pod("p", status);
    assert!(stuck_on_volumes(&pod, testing::now()));
    let finding = examine(&pod, &testing::limits(Some(words))).expect("it waits");
    assert_eq!(finding.reason, reason);
}

#[test]
fn a_ready_pod_and_one_that_ends_in_time_are_well() {
    let limits = testing::limits(None);
    let mut pod = testing::pod("p", testing::ready_status());
    assert!(is_ready(&pod));
    assert_eq!(examine(&pod, &limits), None);
    pod.metadata.deletion_timestamp = Some(testing::time(-100));
    assert!(!is_ready(&pod), "a pod that ends takes no requests");
    assert_eq!(examine(&pod, &limits), None);
}

fn finding_of(status: Value, deadline: Option<i64>) -> Option<&'static str> {
    let mut pod = testing::pod("p", status);
    pod.metadata.deletion_timestamp = deadline.map(testing::time);
    examine(&pod, &testing::limits(None)).map(|finding| finding.reason)
}

/// As the node's controller leaves a pod whose kubelet is silent.
fn silent() -> Value {
    let mut status = testing::ready_status();
    status["conditions"][0]["status"] = json!("False");
    status
}

#[test]
fn a_pod_that_its_node_does_not_end_or_report_is_lost() {
    let lost = Some(reason::NODE_LOST);
    assert_eq!(
        finding_of(testing::ready_status(), Some(100)),
        lost,
        "it is overdue"
    );
    assert_eq!(finding_of(silent(), None), lost);
    assert_eq!(
        finding_of(silent(), Some(-100)),
        lost,
        "its grace does not matter"
    );
}

#[test]
fn a_pod_that_never_served_and_was_driven_away_by_a_taint_is_lost_after_a_minute() {
    let driven = |seconds: i64, ready: &str| {
        let mut status = running(400, false);
        status["conditions"] = json!([
            {"type": "Ready", "status": ready, "lastTransitionTime": testing::ago(400)},
            {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "lastTransitionTime": testing::ago(seconds)},
        ]);
        finding_of(status, Some(-100))
    };
    assert_eq!(driven(70, "False"), Some(reason::NODE_LOST));
    assert_eq!(driven(20, "False"), None);
    assert_eq!(driven(70, "True"), None, "it finishes its requests");
}

#[test]
fn a_readiness_gate_is_not_a_lost_node() {
    let mut status = silent();
    status["conditions"][0]["reason"] = json!("ReadinessGatesNotReady");
    assert_eq!(finding_of(status, None), Some(reason::NOT_READY));
}

#[rstest]
#[case::no_such_class(json!({"type": "PVC", "storageClassName": "fast"}), "storageclass.storage.k8s.io \"fast\" not found", &["qwen-cache", "fast", "kubectl get storageclass"])]
#[case::slow_class(json!({"type": "PVC", "storageClassName": "fast"}), "waiting for a volume", &["qwen-cache", "fast", "provisioner"])]
#[case::no_default(json!({"type": "PVC"}), "no storage class is set", &["qwen-cache", "default"])]
#[case::theirs(json!({"type": "ExistingClaim", "claimName": "models"}), "", &["claimName", "claim models", "create it"])]
#[case::of_the_model(json!({}), "", &["spec.model", "kubectl get pvc"])]
fn a_claim_without_a_volume_is_named_with_its_class_and_a_remedy(
    #[case] cache: Value,
    #[case] says: &str,
    #[case] words: &[&str],
) {
    let cache = serde_json::from_value(cache).expect("a cache");
    let remedy = claim_remedy(&cache, "qwen", None, Some(says));
    for word in words {
        assert!(remedy.contains(word), "{word} is not in {remedy}");
    }
}

#[rstest]
#[case::as_it_is(json!({}), 1_800, "spec.lifecycle.startupTimeout")]
#[case::shorter(json!({"lifecycle": {"startupTimeout": "12s"}}), 12, "spec.lifecycle.startupTimeout")]
#[case::oftener(json!({"probes": {"startup": {"periodSeconds": 1}}}), 360, "failureThreshold of spec.probes.startup")]
#[case::both(
    json!({"probes": {"startup": {"periodSeconds": 2, "failureThreshold": 20}}}),
    40,
    "failureThreshold of spec.probes.startup"
)]
fn a_start_may_take_as_long_as_its_probe_has_patience(
    #[case] change: Value,
    #[case] seconds: u64,
    #[case] field: &str,
) {
    let startup = Startup::of(&testing::pool(&change).spec);
    assert_eq!((startup.limit.as_secs(), startup.field), (seconds, field));
}
