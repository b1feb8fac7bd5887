//! A container that will not come up by waiting.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus};
use lmetric_api::pool::{names::ENGINE_CONTAINER, reason};

use super::{Finding, Limits, Startup, exactly, waiting};

/// An engine that is ended for want of a start is gone so long after its time was over.
const ENDING: Duration = Duration::from_mins(1);

pub(super) fn broken(pod: &str, container: &ContainerStatus, limits: &Limits<'_>) -> Option<Finding> {
    let last = container
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
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
                        "pod {pod} cannot pull {}: {words}; {}",
                        container.image,
                        other_image(container, limits)
                    ),
                });
            }
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                return Some(cannot_create(pod, &container.name, words));
            }
            "CrashLoopBackOff" => return Some(crashed(pod, container, last, limits)),
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
    // what prepares the pod ends with 0; an engine is not to end at all
    let counts =
        |ended: &&ContainerStateTerminated| ended.exit_code != 0 || container.name == limits.container;
    let before = last.filter(|_| container.restart_count > 0);
    ended
        .or(before)
        .filter(counts)
        .map(|ended| crashed(pod, container, Some(ended), limits))
}

fn other_image(container: &ContainerStatus, limits: &Limits<'_>) -> String {
    let fields = &limits.fields;
    let image = if container.name == limits.container {
        format!("correct {}", fields.image)
    } else {
        "correct that image (in spec.podTemplate; that of the drain tool is the operator's --tool-image)"
            .to_owned()
    };
    match fields.pull_secrets {
        Some(secrets) => format!("{image}, or name a Secret that may pull it in {secrets}"),
        None => image,
    }
}

fn cannot_create(pod: &str, container: &str, words: &str) -> Finding {
    let of_a_secret = words.contains("secret") || words.contains("Secret");
    let secret = of_a_secret && (words.contains("not found") || words.contains("couldn't find key"));
    let (reason, remedy) = if secret {
        (
            reason::SECRET_MISSING,
            "create the Secret with that key; the pod goes on by itself",
        )
    } else if words.contains("runAsNonRoot") {
        (
            reason::NOT_READY,
            "choose an image that does not run as root (of Envoy: a distroless one)",
        )
    } else {
        (reason::NOT_READY, "correct what the container refers to")
    };
    Finding {
        reason,
        message: format!("pod {pod} cannot start its container {container}: {words}; {remedy}"),
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
                "container {name} of pod {pod} used more memory than it may ({restarts} restarts); {}",
                more_memory(name, limits)
            ),
        };
    }
    if name == limits.container && last.is_some_and(|last| did_not_start(last, limits)) {
        return Finding {
            reason: reason::START_TIMEOUT,
            message: format!(
                "the engine of pod {pod} was not ready within {} ({restarts} restarts); raise {}, or look why it loads so long (kubectl logs {pod} -c {name} --previous)",
                exactly(limits.startup.limit),
                limits.startup.field
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

fn more_memory(container: &str, limits: &Limits<'_>) -> String {
    let field = limits.fields.memory;
    if container != limits.container {
        "raise the limit of its memory".to_owned()
    } else if container == ENGINE_CONTAINER {
        format!("raise {field}, or lower spec.resources.sharedMemory or what the engine keeps in main memory")
    } else {
        format!("raise {field}")
    }
}

/// Whether it was ended, not by itself, when its time to start was over. One that ends on SIGTERM chooses its exit code;
/// one that had started lived for another time.
fn did_not_start(last: &ContainerStateTerminated, limits: &Limits<'_>) -> bool {
    let (Some(from), Some(to)) = (&last.started_at, &last.finished_at) else {
        return false;
    };
    let lived = to.0.duration_since(from.0).unsigned_abs();
    let Startup {
        limit,
        step,
        field: _,
    } = limits.startup;
    let over = limit.saturating_sub(step)..=limit + ENDING;
    matches!(last.exit_code, 0 | 137 | 143) && over.contains(&lived)
}
