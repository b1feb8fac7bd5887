//! The pool's own changes of the engines' pod template.

use k8s_openapi::{DeepMerge as _, api::core::v1::PodTemplateSpec};

use super::v1::TOOL;
use crate::build::BuildError;

/// Merges `overlay` into `template`: lists with keys (containers, variables, volumes, mounts) item by item, other
/// lists whole. What no pool may change was refused before, by its validation; what is added here under a name of our
/// own is refused here.
pub(super) fn merge(template: &mut PodTemplateSpec, overlay: &PodTemplateSpec) -> Result<(), BuildError> {
    let spec = overlay.spec.as_ref();
    let containers = spec.and_then(|spec| spec.init_containers.as_ref());
    if containers.is_some_and(|containers| containers.iter().any(|container| container.name == TOOL)) {
        return Err(BuildError::NameTaken("initContainers"));
    }
    let volumes = spec.and_then(|spec| spec.volumes.as_ref());
    if volumes.is_some_and(|volumes| volumes.iter().any(|volume| volume.name == TOOL)) {
        return Err(BuildError::NameTaken("volumes"));
    }
    template.merge_from(overlay.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn overlay(written: Value) -> PodTemplateSpec {
        serde_json::from_value(written).unwrap()
    }

    #[rstest]
    #[case(json!({"spec": {"initContainers": [{"name": "lmetric-drain", "image": "x"}]}}), "initContainers")]
    #[case(json!({"spec": {"volumes": [{"name": "lmetric-drain", "emptyDir": {}}]}}), "volumes")]
    fn the_drain_tools_own_names_are_taken(#[case] written: Value, #[case] list: &str) {
        let mut template = PodTemplateSpec::default();
        let error = merge(&mut template, &overlay(written)).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("spec.podTemplate.spec.{list} holds lmetric-drain")),
            "{error}"
        );
        assert_eq!(template, PodTemplateSpec::default());
    }

    #[test]
    fn a_sidecar_is_added_and_the_engine_merged() {
        let mut template = overlay(json!({"spec": {
            "containers": [{"name": "engine", "image": "vllm", "command": ["vllm", "serve"], "env": [{"name": "A", "value": "1"}]}],
        }}));
        let changes = overlay(json!({
            "metadata": {"annotations": {"team": "search"}},
            "spec": {"containers": [
                {"name": "engine", "securityContext": {"privileged": true}, "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]},
                {"name": "logs", "image": "logs", "command": ["tail"]},
            ]},
        }));
        merge(&mut template, &changes).unwrap();
        assert_eq!(
            serde_json::to_value(&template).unwrap(),
            json!({
                "metadata": {"annotations": {"team": "search"}},
                "spec": {"containers": [
                    {
                        "name": "engine", "image": "vllm", "command": ["vllm", "serve"],
                        "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}],
                        "securityContext": {"privileged": true},
                    },
                    {"name": "logs", "image": "logs", "command": ["tail"]},
                ]},
            })
        );
    }
}
