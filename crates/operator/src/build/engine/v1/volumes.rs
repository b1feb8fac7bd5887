//! What an engine's container mounts: shared memory, the drain tool, the cache, claims that hold models.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeMount,
};
use lmetric_api::pool::{CacheType, Quantity, Source, names};

use super::TOOL;
use crate::validated::Validated;

/// Where the cache is mounted.
pub(super) const CACHE_PATH: &str = "/var/lib/lmetric/cache";
/// Where the drain tool is mounted.
pub(super) const TOOL_PATH: &str = "/var/lib/lmetric/bin";

/// Where a claim with models is mounted.
pub(super) fn claim_path(claim: &str) -> String {
    format!("/var/lib/lmetric/claims/{claim}")
}

/// The volumes of the pod, and where the engine's container mounts them.
pub(super) fn volumes(validated: &Validated) -> (Vec<Volume>, Vec<VolumeMount>) {
    let spec = &validated.pool.spec;
    let mut volumes = vec![
        Volume {
            name: "shm".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                medium: Some("Memory".to_owned()),
                size_limit: Some(spec.resources.shared_memory.clone()),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        },
        Volume {
            name: TOOL.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: Some(Quantity("64Mi".to_owned())),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        },
    ];
    let mut mounts = vec![mount("shm", "/dev/shm", false), mount(TOOL, TOOL_PATH, true)];
    if let Some(cache) = cache(validated) {
        volumes.push(cache);
        mounts.push(mount("cache", CACHE_PATH, false));
    }
    for (at, claim) in claims(validated).into_iter().enumerate() {
        let name = format!("claim-{at}");
        mounts.push(mount(&name, &claim_path(claim), true));
        volumes.push(Volume {
            persistent_volume_claim: Some(claim_source(claim)),
            name,
            ..Volume::default()
        });
    }
    (volumes, mounts)
}

fn cache(validated: &Validated) -> Option<Volume> {
    let cache = &validated.pool.spec.cache;
    let mut volume = Volume {
        name: "cache".to_owned(),
        ..Volume::default()
    };
    match cache.kind {
        CacheType::None => return None,
        CacheType::Pvc => {
            volume.persistent_volume_claim = Some(claim_source(&names::cache_claim(&validated.name)));
        }
        CacheType::ExistingClaim => volume.persistent_volume_claim = Some(claim_source(&cache.claim_name)),
        CacheType::HostPath => {
            volume.host_path = Some(HostPathVolumeSource {
                path: cache.path.clone(),
                type_: Some("DirectoryOrCreate".to_owned()),
            });
        }
    }
    Some(volume)
}

/// Claims that the model and its adapters come from, each once.
fn claims(validated: &Validated) -> BTreeSet<&str> {
    std::iter::once(&validated.source)
        .chain(validated.adapters.iter().map(|(_, source)| source))
        .filter_map(|source| match source {
            Source::Claim { claim, .. } => Some(claim.as_str()),
            Source::HuggingFace(_) | Source::ModelScope(_) | Source::File(_) | Source::S3(_) => None,
        })
        .collect()
}

fn claim_source(claim: &str) -> PersistentVolumeClaimVolumeSource {
    PersistentVolumeClaimVolumeSource {
        claim_name: claim.to_owned(),
        ..PersistentVolumeClaimVolumeSource::default()
    }
}

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn built(changes: Value) -> (Value, Value) {
        let (volumes, mounts) = volumes(&testing::pool(changes));
        (
            serde_json::to_value(volumes).unwrap(),
            serde_json::to_value(mounts).unwrap(),
        )
    }

    #[test]
    fn shared_memory_is_memory_of_the_asked_size() {
        let (volumes, mounts) = built(json!({"resources": {"sharedMemory": "4Gi"}}));
        assert_eq!(
            volumes[0],
            json!({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}})
        );
        assert_eq!(mounts[0], json!({"name": "shm", "mountPath": "/dev/shm"}));
        assert_eq!(volumes.as_array().unwrap().len(), 2);
    }

    #[rstest]
    #[case(json!({"type": "PVC"}), json!({"name": "cache", "persistentVolumeClaim": {"claimName": "qwen-cache"}}))]
    #[case(
        json!({"type": "ExistingClaim", "claimName": "shared"}),
        json!({"name": "cache", "persistentVolumeClaim": {"claimName": "shared"}})
    )]
    #[case(
        json!({"type": "HostPath", "path": "/mnt/models"}),
        json!({"name": "cache", "hostPath": {"path": "/mnt/models", "type": "DirectoryOrCreate"}})
    )]
    fn the_cache_is_mounted_from_where_the_pool_says(#[case] cache: Value, #[case] volume: Value) {
        let (volumes, mounts) = built(json!({"cache": cache}));
        assert_eq!(volumes[2], volume);
        assert_eq!(
            mounts[2],
            json!({"name": "cache", "mountPath": "/var/lib/lmetric/cache"})
        );
    }

    #[test]
    fn a_claim_of_models_is_mounted_once_and_read_only() {
        let (volumes, mounts) = built(json!({"model": {
            "uri": "pvc://weights/qwen",
            "adapters": [{"name": "a", "uri": "pvc://weights/a"}, {"name": "b", "uri": "pvc://adapters/b"}],
        }}));
        let claims: Vec<_> = volumes.as_array().unwrap()[2..]
            .iter()
            .map(|volume| volume["persistentVolumeClaim"]["claimName"].clone())
            .collect();
        assert_eq!(json!(claims), json!(["adapters", "weights"]));
        assert_eq!(
            mounts[3],
            json!({"name": "claim-1", "mountPath": "/var/lib/lmetric/claims/weights", "readOnly": true})
        );
    }
}
