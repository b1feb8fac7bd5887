//! What pickers' and Envoy's pods have in common. The engines' have code of their own, since theirs must not change.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EmptyDirVolumeSource, LocalObjectReference,
    PodAffinityTerm, PodAntiAffinity, ResourceRequirements, SeccompProfile, SecurityContext, Volume,
    VolumeMount, WeightedPodAffinityTerm,
};
use lmetric_api::pool::{Component, Quantity, Resources, SecretName};

use super::meta;
use crate::validated::Validated;

/// Name of the volume with the drain tool, and of what puts it there.
pub(super) const TOOL: &str = "lmetric-drain";
/// Where the drain tool is mounted.
pub(super) const TOOL_PATH: &str = "/var/lib/lmetric/bin";

/// What Pod Security calls restricted, and no writing to the image. The user is the image's own, or the one that OpenShift
/// chooses: it refuses any that is fixed here.
pub(super) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Capabilities::default()
        }),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..SecurityContext::default()
    }
}

/// The pool's own amounts; ours where it gives none at all.
pub(super) fn requirements(
    own: &Resources,
    requests: &[(&str, &str)],
    limits: &[(&str, &str)],
) -> ResourceRequirements {
    let Resources {
        requests: own_requests,
        limits: own_limits,
    } = own;
    let (requests, limits) = if own_requests.is_empty() && own_limits.is_empty() {
        (amounts(requests), amounts(limits))
    } else {
        (own_requests.clone(), own_limits.clone())
    };
    ResourceRequirements {
        requests: Some(requests).filter(|amounts| !amounts.is_empty()),
        limits: Some(limits).filter(|amounts| !amounts.is_empty()),
        ..ResourceRequirements::default()
    }
}

fn amounts(of: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    of.iter()
        .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
        .collect()
}

/// Rather on different nodes.
pub(super) fn apart(validated: &Validated, component: Component) -> Affinity {
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: PodAffinityTerm {
                    label_selector: Some(meta::selector(validated, component)),
                    topology_key: "kubernetes.io/hostname".to_owned(),
                    ..PodAffinityTerm::default()
                },
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

/// A TCP port of a container.
pub(super) fn port(name: &str, port: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// A mount.
pub(super) fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// An empty folder of at most `limit`.
pub(super) fn empty_dir(name: &str, limit: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            size_limit: Some(Quantity(limit.to_owned())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Copies the drain tool into [`TOOL`], for images that have neither shell nor client.
pub(super) fn install_tool(image: &str, pull_policy: &str) -> Container {
    Container {
        name: TOOL.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(pull_policy.to_owned()),
        command: Some(vec![format!("/{TOOL}")]),
        args: Some(vec!["--install".to_owned(), TOOL_PATH.to_owned()]),
        resources: Some(ResourceRequirements {
            requests: Some(amounts(&[("cpu", "10m"), ("memory", "16Mi")])),
            limits: Some(amounts(&[("memory", "64Mi")])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(restricted()),
        volume_mounts: Some(vec![mount(TOOL, TOOL_PATH, false)]),
        ..Container::default()
    }
}

/// Secrets with which images are pulled.
pub(super) fn pull_secrets(secrets: &[SecretName]) -> Option<Vec<LocalObjectReference>> {
    let secrets: Vec<_> = secrets
        .iter()
        .map(|SecretName { name }| LocalObjectReference { name: name.clone() })
        .collect();
    Some(secrets).filter(|secrets| !secrets.is_empty())
}

/// A text that says something.
pub(super) fn said(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_of_the_pool_take_the_place_of_all_of_ours() {
        let own = |written| serde_json::from_value::<Resources>(written).unwrap();
        let built =
            |own| serde_json::to_value(requirements(&own, &[("cpu", "1")], &[("memory", "4Gi")])).unwrap();
        assert_eq!(
            built(own(json!({}))),
            json!({"requests": {"cpu": "1"}, "limits": {"memory": "4Gi"}})
        );
        assert_eq!(
            built(own(json!({"requests": {"memory": "1Gi"}}))),
            json!({"requests": {"memory": "1Gi"}})
        );
    }
}
