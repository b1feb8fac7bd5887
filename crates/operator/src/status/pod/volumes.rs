//! A pod that waits for its volumes, or for the claim of one.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, PersistentVolumeClaim, Pod};
use lmetric_api::pool::{Cache, CacheType, names, reason};

use super::{Finding, condition, containers, waiting};

/// A pod may wait so long for its volumes before its Events are looked at.
const PATIENCE: Duration = Duration::from_secs(4);

/// Whether the pod has a node and has waited a while for its volumes, or something else before its first container.
pub fn stuck_on_volumes(pod: &Pod, now: Timestamp) -> bool {
    let Some(scheduled) = condition(pod, "PodScheduled").filter(|scheduled| scheduled.status == "True")
    else {
        return false;
    };
    let Some(since) = &scheduled.last_transition_time else {
        return false;
    };
    now.duration_since(since.0).unsigned_abs() >= PATIENCE
        && containers(pod).any(|container| waiting(container).is_some_and(is_creating))
        && !containers(pod).any(|container| container.started == Some(true))
}

/// Whether the pod finds no node for want of a volume.
pub fn waits_for_claim(pod: &Pod) -> bool {
    condition(pod, "PodScheduled").is_some_and(|scheduled| {
        scheduled.status == "False" && scheduled.message.as_deref().is_some_and(is_about_a_claim)
    })
}

/// Whether the scheduler speaks of a claim.
pub(super) fn is_about_a_claim(words: &str) -> bool {
    [
        "persistentvolumeclaim",
        "volume node affinity",
        "persistent volume",
    ]
    .iter()
    .any(|word| words.to_lowercase().contains(word))
}

fn is_creating(waiting: &ContainerStateWaiting) -> bool {
    matches!(
        waiting.reason.as_deref(),
        Some("ContainerCreating" | "PodInitializing")
    )
}

/// What a person has to do when an engine's claim has no volume. `claim` is the pool's own as it is, `words` what its Events
/// say.
pub(in crate::status) fn remedy(
    cache: &Cache,
    pool: &str,
    claim: Option<&PersistentVolumeClaim>,
    words: Option<&str>,
) -> String {
    if cache.kind == CacheType::ExistingClaim {
        let name = &cache.claim_name;
        return format!(
            "spec.cache.claimName asks for claim {name} of this namespace: create it, give it a volume (kubectl describe pvc {name}), or correct the name"
        );
    }
    let name = names::cache_claim(pool);
    let class = claim
        .and_then(|claim| claim.spec.as_ref()?.storage_class_name.as_deref())
        .unwrap_or(&cache.storage_class_name);
    let says = words.map_or_else(String::new, |words| format!(": {words}"));
    match cache.kind {
        CacheType::Pvc if class.is_empty() => format!(
            "claim {name} has no storage class and the cluster no default one{says}; make a class the default (kubectl get storageclass), or make the pool anew with spec.cache.storageClassName"
        ),
        CacheType::Pvc
            if words.is_some_and(|words| words.contains("storageclass") && words.contains("not found")) =>
        {
            format!(
                "claim {name} asks for storage class {class}, which does not exist{says}; create it, or make the pool anew with a class that kubectl get storageclass shows"
            )
        }
        CacheType::Pvc => format!(
            "claim {name} of storage class {class} has no volume{says}; look at the class's provisioner (kubectl describe pvc {name})"
        ),
        CacheType::None | CacheType::HostPath | CacheType::ExistingClaim => {
            "look at the claims that spec.model and spec.podTemplate name (kubectl get pvc)".to_owned()
        }
    }
}

pub(super) fn waits(pod: &str, words: &str) -> Finding {
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
