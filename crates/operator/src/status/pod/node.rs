//! A pod that has no node, or whose node does not answer.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use lmetric_api::pool::reason;

use super::{Finding, Limits, condition, template_of, volumes};

/// A pod that is still there so long after it should have gone is on a node that does not answer.
const MARGIN: Duration = Duration::from_mins(1);

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
    // Unschedulable, or SchedulingGated, or SchedulerError
    let scheduled = condition(pod, "PodScheduled").filter(|scheduled| scheduled.status == "False")?;
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

pub(super) fn none_found(name: &str, unscheduled: &Unscheduled, limits: &Limits<'_>) -> Finding {
    let words = unscheduled.words.trim_end_matches('.');
    let (reason, remedy) = if unscheduled.accelerator {
        let remedy = format!(
            "free {}, add nodes that match spec.accelerator, or lower spec.replicas",
            limits.resource
        );
        (reason::INSUFFICIENT_GPU, remedy)
    } else if volumes::is_about_a_claim(words) {
        (reason::VOLUME_PENDING, limits.claim.to_owned())
    } else {
        let remedy = "compare spec.placement, spec.accelerator and spec.resources with your nodes (kubectl describe nodes)";
        (reason::UNSCHEDULABLE, remedy.to_owned())
    };
    Finding {
        reason,
        message: format!("pod {name} finds no node: {words}; {remedy}"),
    }
}

/// Whether the kubelet no longer tells how the pod is: its last word was that all containers are ready, and the node's
/// controller took the pod's readiness away. A readiness gate does that too, with a reason.
pub(super) fn is_silent(pod: &Pod) -> bool {
    let is = |kind: &str, status: &str| condition(pod, kind).filter(|condition| condition.status == status);
    let taken = is("Ready", "False").is_some_and(|ready| {
        ready
            .reason
            .as_deref()
            .is_none_or(|reason| reason.starts_with("Node"))
    });
    taken && is("ContainersReady", "True").is_some()
}

/// Whether a pod that is to end cannot, because its node does not answer.
pub(super) fn left_behind(pod: &Pod, now: Timestamp) -> bool {
    let long_ago = |since: Timestamp| now > since && now.duration_since(since).unsigned_abs() > MARGIN;
    let deadline = pod.metadata.deletion_timestamp.as_ref();
    if deadline.is_some_and(|deadline| long_ago(deadline.0)) || is_silent(pod) {
        return true;
    }
    // the node's taint drove it away before it had ever served: it has no request to finish
    let driven_away = condition(pod, "DisruptionTarget").filter(|target| {
        target.status == "True" && target.reason.as_deref() == Some("DeletionByTaintManager")
    });
    let since = driven_away.and_then(|target| target.last_transition_time.as_ref());
    let ready = condition(pod, "Ready").is_some_and(|ready| ready.status == "True");
    since.is_some_and(|since| long_ago(since.0)) && !ready
}

pub(super) fn lost(pod: &Pod, name: &str) -> Finding {
    let node = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or("unknown");
    Finding {
        reason: reason::NODE_LOST,
        message: format!(
            "node {node} of pod {name} does not answer; look at its machine and its kubelet and bring it back; if it is off for good, delete the node, or taint it node.kubernetes.io/out-of-service"
        ),
    }
}
