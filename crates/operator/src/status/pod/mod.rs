//! What one pod's status means, and what a person has to do about it. Pure; the words are those that the scheduler, the
//! kubelet and the container runtime use.

mod container;
mod node;
#[cfg(test)]
mod tests;
mod volumes;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Pod, PodCondition};
use kube::ResourceExt as _;
use lmetric_api::pool::{InferencePoolSpec, reason};

use super::fields::Fields;
pub use node::{Unscheduled, unschedulable};
pub(super) use volumes::remedy as claim_remedy;
pub use volumes::{stuck_on_volumes, waits_for_claim};

const MINUTE: Duration = Duration::from_mins(1);

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
    /// Fields of the pool that the pod comes from.
    pub fields: Fields,
    /// Extended resource of accelerators.
    pub resource: &'a str,
    /// Time that a start may take.
    pub startup: Startup,
    /// What the kubelet says about volumes.
    pub volumes: Option<&'a str>,
    /// What to do about a claim that has no volume.
    pub claim: &'a str,
}

/// How long an engine may take to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startup {
    /// At most so long.
    pub limit: Duration,
    /// The start is looked at so often.
    pub step: Duration,
    /// Field of the pool that says so.
    pub field: &'static str,
}

impl Startup {
    /// As the startup probe has it: `probes.startup` changes how often it asks, and so how long in all.
    pub fn of(spec: &InferencePoolSpec) -> Self {
        const PERIOD: u64 = 5;
        let wanted: Duration = spec.lifecycle.startup_timeout.into();
        let probe = &spec.probes.startup;
        let positive = |value: Option<i32>| value.and_then(|value| u64::try_from(value).ok());
        let period = positive(probe.period_seconds);
        let failures = positive(probe.failure_threshold);
        let step = Duration::from_secs(period.unwrap_or(PERIOD));
        if period.is_none() && failures.is_none() {
            return Self {
                limit: wanted,
                step,
                field: "spec.lifecycle.startupTimeout",
            };
        }
        let failures = failures.unwrap_or(wanted.as_secs().div_ceil(PERIOD).max(1));
        Self {
            limit: Duration::from_secs(step.as_secs() * failures),
            step,
            field: "failureThreshold of spec.probes.startup",
        }
    }

    /// Without a limit.
    pub const fn unlimited() -> Self {
        Self {
            limit: Duration::from_hours(24 * 365),
            step: Duration::from_secs(5),
            field: "",
        }
    }
}

/// Whether the pod is being ended or has ended.
pub fn is_going(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the pod serves: ready and not being ended.
pub fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// Since when the pod serves, in whole seconds; `None` when it does not.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    if is_going(pod) {
        return None;
    }
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    let since = ready.last_transition_time.as_ref();
    Some(since.map_or(Timestamp::UNIX_EPOCH, |since| since.0))
}

/// Label value that tells pods of one template from those of another.
pub fn template_of(pod: &Pod) -> Option<&str> {
    pod.labels().get("pod-template-hash").map(String::as_str)
}

/// What is the matter with the pod; `None` when it serves.
pub fn examine(pod: &Pod, limits: &Limits<'_>) -> Option<Finding> {
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        return node::left_behind(pod, limits.now).then(|| node::lost(pod, &name));
    }
    if is_going(pod) || is_ready(pod) {
        return None;
    }
    if let Some(unscheduled) = unschedulable(pod, limits.resource) {
        return Some(node::none_found(&name, &unscheduled, limits));
    }
    if let Some(finding) = containers(pod).find_map(|status| container::broken(&name, status, limits)) {
        return Some(finding);
    }
    if let Some(words) = limits.volumes.filter(|_| stuck_on_volumes(pod, limits.now)) {
        return Some(volumes::waits(&name, words));
    }
    let main = containers(pod).find(|container| container.name == limits.container);
    let started = main.and_then(|container| Some((container, container.state.as_ref()?.running.as_ref()?)));
    match started {
        Some((main, running)) if main.started == Some(true) => {
            let since = running.started_at.as_ref().map(|at| at.0);
            Some(if node::is_silent(pod) {
                node::lost(pod, &name)
            } else if is_fresh(pod, since, limits) {
                Finding {
                    reason: reason::STARTING,
                    message: format!("pod {name} has started and is not ready yet"),
                }
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

/// Whether the container that started at `since` may still become ready for the first time: its readiness is probed
/// only after it has started.
fn is_fresh(pod: &Pod, since: Option<Timestamp>, limits: &Limits<'_>) -> bool {
    let Some(since) = since else {
        return false;
    };
    let changed = condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref());
    let was_ready = changed.is_some_and(|changed| changed.0 > since);
    !was_ready && limits.now.duration_since(since).unsigned_abs() < limits.startup.limit
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

fn starting(pod: &str, since: Option<Timestamp>, limits: &Limits<'_>) -> Finding {
    let limit = exactly(limits.startup.limit);
    let message = match since {
        Some(since) => format!(
            "pod {pod} loads its model: {} of at most {limit}",
            if limits.startup.limit < MINUTE {
                "some seconds".to_owned()
            } else {
                minutes(limits.now.duration_since(since).unsigned_abs())
            }
        ),
        None => format!("pod {pod} is being made; then it may load for {limit}"),
    };
    Finding {
        reason: reason::STARTING,
        message,
    }
}

/// A time that a person has set.
fn exactly(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds.is_multiple_of(60) {
        format!("{} min", seconds / 60)
    } else {
        format!("{seconds} s")
    }
}

/// Whole minutes, so that a message does not change with each look.
fn minutes(time: Duration) -> String {
    if time < MINUTE && !time.is_zero() {
        return "less than a minute".to_owned();
    }
    format!("{} min", time.as_secs() / 60)
}
