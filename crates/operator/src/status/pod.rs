//! What one pod's status means, and what a person has to do about it. Pure; the words are those that the scheduler, the
//! kubelet and the container runtime use.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod, PodCondition,
};
use kube::ResourceExt as _;
use lmetric_api::pool::reason;

/// A pod may wait so long for its volumes before its Events are looked at.
const VOLUME_PATIENCE: Duration = Duration::from_secs(20);
/// A pod that is still there so long after its grace was over is on a node that does not answer.
const GRACE_MARGIN: Duration = Duration::from_mins(1);

/// What is the matter with a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// One of [`lmetric_api::pool::reason`].
    pub reason: &'static str,
    /// For a person: what is wrong, and what to do.
    pub message: String,
}

/// What the classification of an engine's pod needs beside the pod.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Now.
    pub now: Timestamp,
    /// Name of the container that matters.
    pub container: &'a str,
    /// Extended resource of accelerators.
    pub resource: &'a str,
    /// Time that a start may take.
    pub startup: Duration,
    /// What the kubelet says about volumes.
    pub volumes: Option<&'a str>,
}

/// Whether the pod is being ended or has ended.
pub fn is_going(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the pod serves: ready and not being ended.
pub fn is_ready(pod: &Pod) -> bool {
    !is_going(pod) && condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Label value that tells pods of one template from those of another.
pub fn template_of(pod: &Pod) -> Option<&str> {
    pod.labels().get("pod-template-hash").map(String::as_str)
}

/// A pod that finds no node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unscheduled {
    /// Since when.
    pub since: Timestamp,
    /// Whether an accelerator is what it lacks.
    pub accelerator: bool,
    /// The scheduler's words.
    pub words: String,
    /// The pod's template.
    pub template: Option<String>,
}

/// Why the pod finds no node, if that is so.
pub fn unschedulable(pod: &Pod, resource: &str) -> Option<Unscheduled> {
    let scheduled = condition(pod, "PodScheduled")?;
    if scheduled.status != "False" || scheduled.reason.as_deref() != Some("Unschedulable") {
        return None;
    }
    let words = scheduled.message.clone().unwrap_or_default();
    let since = scheduled
        .last_transition_time
        .as_ref()
        .or(pod.metadata.creation_timestamp.as_ref())?;
    Some(Unscheduled {
        since: since.0,
        accelerator: words.contains(&format!("Insufficient {resource}")),
        words,
        template: template_of(pod).map(str::to_owned),
    })
}

/// Whether the pod has a node and has waited a while for its volumes, or something else before its first container.
pub fn stuck_on_volumes(pod: &Pod, now: Timestamp) -> bool {
    let Some(scheduled) = condition(pod, "PodScheduled").filter(|scheduled| scheduled.status == "True")
    else {
        return false;
    };
    let Some(since) = &scheduled.last_transition_time else {
        return false;
    };
    now.duration_since(since.0).unsigned_abs() >= VOLUME_PATIENCE
        && containers(pod).any(|container| waiting(container).is_some_and(is_creating))
        && !containers(pod).any(|container| container.started == Some(true))
}

/// What is the matter with the pod; `None` when it serves.
pub fn examine(pod: &Pod, limits: &Limits<'_>) -> Option<Finding> {
    let name = pod.name_any();
    if let Some(deadline) = &pod.metadata.deletion_timestamp {
        let late =
            limits.now > deadline.0 && limits.now.duration_since(deadline.0).unsigned_abs() > GRACE_MARGIN;
        return late.then(|| lost(pod, &name));
    }
    if is_going(pod) || is_ready(pod) {
        return None;
    }
    if let Some(unscheduled) = unschedulable(pod, limits.resource) {
        return Some(no_node(&name, &unscheduled, limits));
    }
    if let Some(finding) = containers(pod).find_map(|container| broken(&name, container, limits)) {
        return Some(finding);
    }
    if let Some(words) = limits.volumes.filter(|_| stuck_on_volumes(pod, limits.now)) {
        return Some(volumes(&name, words));
    }
    let main = containers(pod).find(|container| container.name == limits.container);
    let started = main.and_then(|container| Some((container, container.state.as_ref()?.running.as_ref()?)));
    match started {
        Some((main, _)) if main.started == Some(true) => {
            Some(if containers(pod).all(|container| container.ready) {
                lost(pod, &name)
            } else {
                Finding {
                    reason: reason::NOT_READY,
                    message: format!(
                        "pod {name} runs and does not answer its readiness probe; look at its log (kubectl logs {name} -c {})",
                        limits.container
                    ),
                }
            })
        }
        Some((_, running)) => Some(starting(
            &name,
            running.started_at.as_ref().map(|at| at.0),
            limits,
        )),
        None => Some(starting(&name, None, limits)),
    }
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == kind)
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let first = status.and_then(|status| status.init_container_statuses.as_deref());
    let then = status.and_then(|status| status.container_statuses.as_deref());
    first.unwrap_or_default().iter().chain(then.unwrap_or_default())
}

fn waiting(container: &ContainerStatus) -> Option<&ContainerStateWaiting> {
    container.state.as_ref()?.waiting.as_ref()
}

fn is_creating(waiting: &ContainerStateWaiting) -> bool {
    matches!(
        waiting.reason.as_deref(),
        Some("ContainerCreating" | "PodInitializing")
    )
}

fn no_node(name: &str, unscheduled: &Unscheduled, limits: &Limits<'_>) -> Finding {
    let words = unscheduled.words.as_str();
    let (reason, remedy) = if unscheduled.accelerator {
        (
            reason::INSUFFICIENT_GPU,
            format!(
                "free {}, add nodes that match spec.accelerator, or lower spec.replicas",
                limits.resource
            ),
        )
    } else if [
        "persistentvolumeclaim",
        "PersistentVolumeClaim",
        "volume node affinity",
    ]
    .iter()
    .any(|word| words.contains(word))
    {
        (
            reason::VOLUME_PENDING,
            "look at the claim (kubectl describe pvc) and at spec.cache".to_owned(),
        )
    } else {
        (
            reason::UNSCHEDULABLE,
            "compare spec.placement, spec.accelerator and spec.resources with your nodes (kubectl describe nodes)".to_owned(),
        )
    };
    Finding {
        reason,
        message: format!("pod {name} finds no node: {words} To do: {remedy}"),
    }
}

/// A container that will not come up by waiting.
fn broken(pod: &str, container: &ContainerStatus, limits: &Limits<'_>) -> Option<Finding> {
    if let Some(waiting) = waiting(container) {
        let words = waiting.message.as_deref().unwrap_or_default();
        match waiting.reason.as_deref().unwrap_or_default() {
            "ImagePullBackOff"
            | "ErrImagePull"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "ImageInspectError"
            | "RegistryUnavailable"
            | "SignatureValidationFailed" => {
                return Some(Finding {
                    reason: reason::IMAGE_PULL,
                    message: format!(
                        "pod {pod} cannot pull {}: {words}; correct the image, or name a Secret that may pull it in pullSecrets",
                        container.image
                    ),
                });
            }
            "CreateContainerConfigError" | "CreateContainerError" => return Some(cannot_create(pod, words)),
            "CrashLoopBackOff" => {
                let last = container
                    .last_state
                    .as_ref()
                    .and_then(|state| state.terminated.as_ref());
                return Some(crashed(pod, container, last, limits));
            }
            _ => {}
        }
    }
    if container.ready || container.started == Some(true) {
        return None;
    }
    // between two crashes: the back-off has not begun, or the next try runs
    let ended = container
        .state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let last = container
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    match ended {
        Some(ended) if ended.exit_code != 0 => Some(crashed(pod, container, Some(ended), limits)),
        _ if container.restart_count > 0 && last.is_some_and(|last| last.exit_code != 0) => {
            Some(crashed(pod, container, last, limits))
        }
        _ => None,
    }
}

fn cannot_create(pod: &str, words: &str) -> Finding {
    let secret =
        words.contains("secret") && (words.contains("not found") || words.contains("couldn't find key"));
    let (reason, remedy) = if secret {
        (
            reason::SECRET_MISSING,
            "create the Secret with that key; the pod goes on by itself",
        )
    } else {
        (reason::NOT_READY, "correct what the container refers to")
    };
    Finding {
        reason,
        message: format!("pod {pod} cannot start a container: {words}; {remedy}"),
    }
}

fn crashed(
    pod: &str,
    container: &ContainerStatus,
    last: Option<&ContainerStateTerminated>,
    limits: &Limits<'_>,
) -> Finding {
    let (restarts, name) = (container.restart_count, container.name.as_str());
    if last.and_then(|last| last.reason.as_deref()) == Some("OOMKilled") {
        return Finding {
            reason: reason::OOM_KILLED,
            message: format!(
                "container {name} of pod {pod} used more memory than it may ({restarts} restarts); raise its memory, or lower sharedMemory or what the engine keeps in main memory"
            ),
        };
    }
    let lived = last.and_then(|last| {
        let (from, to) = (last.started_at.as_ref()?, last.finished_at.as_ref()?);
        Some(to.0.duration_since(from.0).unsigned_abs())
    });
    let killed = last.is_some_and(|last| matches!(last.exit_code, 137 | 143));
    // the startup probe counts in steps of five seconds
    let limit = limits.startup.saturating_sub(Duration::from_secs(5));
    if name == limits.container && killed && lived.is_some_and(|lived| lived >= limit) {
        return Finding {
            reason: reason::START_TIMEOUT,
            message: format!(
                "the engine of pod {pod} was not ready within {} ({restarts} restarts); raise spec.lifecycle.startupTimeout, or look why it loads so long (kubectl logs {pod} -c {name} --previous)",
                minutes(limits.startup)
            ),
        };
    }
    let code = last.map_or_else(String::new, |last| format!(" with exit code {}", last.exit_code));
    Finding {
        reason: reason::CRASH_LOOP,
        message: format!(
            "container {name} of pod {pod} ended{code} ({restarts} restarts); look at its log (kubectl logs {pod} -c {name} --previous)"
        ),
    }
}

fn volumes(pod: &str, words: &str) -> Finding {
    let secret = words.contains("secret") && words.contains("not found");
    let (reason, remedy) = if secret {
        (
            reason::SECRET_MISSING,
            "create the Secret; the pod goes on by itself",
        )
    } else {
        (
            reason::VOLUME_ATTACH,
            "look at the volume and at who else holds it (kubectl describe pod); several nodes need accessMode ReadWriteMany",
        )
    };
    Finding {
        reason,
        message: format!("pod {pod} waits for its volumes: {words}; {remedy}"),
    }
}

fn lost(pod: &Pod, name: &str) -> Finding {
    let node = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or("unknown");
    Finding {
        reason: reason::NODE_LOST,
        message: format!(
            "node {node} of pod {name} does not answer; bring it back, or delete the node, or taint it node.kubernetes.io/out-of-service"
        ),
    }
}

fn starting(pod: &str, since: Option<Timestamp>, limits: &Limits<'_>) -> Finding {
    let limit = minutes(limits.startup);
    let message = match since {
        Some(since) => format!(
            "pod {pod} loads its model: {} of at most {limit}",
            minutes(limits.now.duration_since(since).unsigned_abs())
        ),
        None => format!("pod {pod} is being made; then it may load for {limit}"),
    };
    Finding {
        reason: reason::STARTING,
        message,
    }
}

/// Whole minutes, so that a message does not change with each look.
fn minutes(time: Duration) -> String {
    if time < Duration::from_mins(1) && !time.is_zero() {
        return "less than a minute".to_owned();
    }
    format!("{} min", time.as_secs() / 60)
}

#[cfg(test)]
mod tests {
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
        "spec.cache"
    )]
    #[case(
        unscheduled("pod has unbound immediate PersistentVolumeClaims."),
        reason::VOLUME_PENDING,
        "kubectl describe pvc"
    )]
    #[case(waiting("ImagePullBackOff", "Back-off pulling image", &json!({}), 0), reason::IMAGE_PULL, "pullSecrets")]
    #[case(waiting("ErrImageNeverPull", "not present", &json!({}), 0), reason::IMAGE_PULL, "vllm:1")]
    #[case(waiting("CreateContainerConfigError", "secret \"hf-token\" not found", &json!({}), 0), reason::SECRET_MISSING, "create the Secret")]
    #[case(waiting("CreateContainerConfigError", "couldn't find key token in Secret secret n/hf", &json!({}), 0), reason::SECRET_MISSING, "with that key")]
    #[case(waiting("CreateContainerConfigError", "configmap \"c\" not found", &json!({}), 0), reason::NOT_READY, "configmap")]
    #[case(waiting("CrashLoopBackOff", "", &ended(1, "Error", 9), 4), reason::CRASH_LOOP, "exit code 1 (4 restarts)")]
    #[case(waiting("CrashLoopBackOff", "", &ended(137, "OOMKilled", 9), 4), reason::OOM_KILLED, "raise its memory")]
    #[case(waiting("CrashLoopBackOff", "", &ended(137, "Error", 1_800), 2), reason::START_TIMEOUT, "startupTimeout")]
    #[case(waiting("CrashLoopBackOff", "", &ended(137, "Error", 90), 2), reason::CRASH_LOOP, "exit code 137")]
    #[case(container(&ended(2, "Error", 3), &json!({}), 0, false), reason::CRASH_LOOP, "exit code 2")]
    #[case(container(&json!({"running": {"startedAt": testing::ago(3)}}), &ended(1, "Error", 9), 3, false), reason::CRASH_LOOP, "3 restarts")]
    #[case(waiting("ContainerCreating", "", &json!({}), 0), reason::STARTING, "30 min")]
    #[case(running(125, false), reason::STARTING, "2 min of at most 30 min")]
    #[case(running(125, true), reason::NOT_READY, "readiness probe")]
    #[case(json!({}), reason::STARTING, "is being made")]
    fn each_state_has_its_reason_and_a_remedy(
        #[case] status: Value,
        #[case] reason: &str,
        #[case] words: &str,
    ) {
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

    #[test]
    fn a_pod_that_its_node_does_not_end_or_report_is_lost() {
        let limits = testing::limits(None);
        let mut ending = testing::pod("p", testing::ready_status());
        ending.metadata.deletion_timestamp = Some(testing::time(100));
        assert_eq!(
            examine(&ending, &limits).map(|finding| finding.reason),
            Some(reason::NODE_LOST)
        );
        let mut status = testing::ready_status();
        status["conditions"][0]["status"] = json!("False");
        let silent = testing::pod("p", status);
        assert_eq!(
            examine(&silent, &limits).map(|finding| finding.reason),
            Some(reason::NODE_LOST)
        );
    }
}
