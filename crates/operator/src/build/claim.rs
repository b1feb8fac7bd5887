//! The claim of the model cache.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use lmetric_api::pool::{CacheType, Component, names};

use super::meta;
use crate::validated::Validated;

/// The claim that the pool asks for, with cache type PVC.
pub(super) fn build(validated: &Validated) -> Option<PersistentVolumeClaim> {
    let cache = &validated.pool.spec.cache;
    if cache.kind != CacheType::Pvc {
        return None;
    }
    let mut metadata = meta::of_component(validated, Component::Engine);
    metadata.name = Some(names::cache_claim(&validated.name));
    if cache.retain {
        // whatever has an owner goes with it
        metadata.owner_references = None;
    }
    Some(PersistentVolumeClaim {
        metadata,
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![cache.access_mode.as_str().to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), cache.size.clone())])),
                ..VolumeResourceRequirements::default()
            }),
            storage_class_name: Some(cache.storage_class_name.clone()).filter(|class| !class.is_empty()),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn a_claim_is_made_for_type_pvc_only() {
        for cache in [
            json!({"type": "None"}),
            json!({"type": "ExistingClaim", "claimName": "models"}),
            json!({"type": "HostPath", "path": "/mnt/models"}),
        ] {
            assert_eq!(build(&testing::pool(json!({"cache": cache}))), None);
        }
        let claim = build(&testing::pool(
            json!({"cache": {"type": "PVC", "storageClassName": "fast"}}),
        ))
        .unwrap();
        assert_eq!(claim.metadata.name.as_deref(), Some("qwen-cache"));
        assert_eq!(
            serde_json::to_value(claim.spec).unwrap(),
            json!({
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "200Gi"}},
                "storageClassName": "fast",
            })
        );
    }

    #[test]
    fn a_claim_that_stays_has_no_owner() {
        let owners = |retain: bool| {
            let cache = json!({"type": "PVC", "retain": retain});
            build(&testing::pool(json!({"cache": cache})))
                .unwrap()
                .metadata
                .owner_references
        };
        assert!(owners(false).is_some());
        assert_eq!(owners(true), None);
    }
}
