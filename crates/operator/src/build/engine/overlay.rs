//! The pool's own changes of the engines' pod template.

use k8s_openapi::{DeepMerge as _, api::core::v1::PodTemplateSpec};
use lmetric_api::pool::names::{ENGINE_CONTAINER, label};

use super::v1::TOOL;
use crate::build::BuildError;

/// Merges `overlay` into `template`: lists with keys (containers, variables, volumes, mounts) item by item, other
/// lists whole.
pub(super) fn merge(template: &mut PodTemplateSpec, overlay: &PodTemplateSpec) -> Result<(), BuildError> {
    if let Some((field, remedy)) = protected(overlay) {
        return Err(BuildError::Protected { field, remedy });
    }
    template.merge_from(overlay.clone());
    Ok(())
}

/// The first field of `overlay` that is not the pool's to change, and what to do instead.
pub fn protected(overlay: &PodTemplateSpec) -> Option<(String, &'static str)> {
    let labels = overlay
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.labels.as_ref());
    for key in [label::POOL, label::COMPONENT] {
        if labels.is_some_and(|labels| labels.contains_key(key)) {
            return Some((
                format!("metadata.labels[{key}]"),
                "remove it: the pool finds its pods by this label",
            ));
        }
    }
    let spec = overlay.spec.as_ref()?;
    if spec.termination_grace_period_seconds.is_some() {
        return Some((
            "spec.terminationGracePeriodSeconds".to_owned(),
            "use spec.lifecycle.drainTimeout, to which the grace period follows",
        ));
    }
    if let Some(engine) = spec
        .containers
        .iter()
        .find(|container| container.name == ENGINE_CONTAINER)
    {
        let written = [
            (engine.ports.is_some(), "ports", "use spec.engine.port and spec.engine.kvEvents"),
            (
                engine.command.is_some(),
                "command",
                "remove it: engines run `vllm serve`; put another program into an image of that name",
            ),
            (engine.args.is_some(), "args", "use spec.engine.args"),
            (
                engine.lifecycle.is_some(),
                "lifecycle",
                "remove it: its preStop drains the engine",
            ),
        ];
        if let Some((_, field, remedy)) = written.into_iter().find(|(is_written, ..)| *is_written) {
            return Some((format!("spec.containers[{ENGINE_CONTAINER}].{field}"), remedy));
        }
    }
    let tool = |name: &str| name == TOOL;
    if spec.init_containers.iter().flatten().any(|init| tool(&init.name)) {
        return Some((
            format!("spec.initContainers[{TOOL}]"),
            "give your container another name: this one installs the drain tool",
        ));
    }
    if spec.volumes.iter().flatten().any(|volume| tool(&volume.name)) {
        return Some((
            format!("spec.volumes[{TOOL}]"),
            "give your volume another name: this one holds the drain tool",
        ));
    }
    None
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
    #[case(json!({"metadata": {"labels": {"lmetric.io/pool": "other"}}}), "metadata.labels[lmetric.io/pool]")]
    #[case(
        json!({"metadata": {"labels": {"app.kubernetes.io/component": "x"}}}),
        "metadata.labels[app.kubernetes.io/component]"
    )]
    #[case(json!({"spec": {"terminationGracePeriodSeconds": 5}}), "spec.terminationGracePeriodSeconds")]
    #[case(
        json!({"spec": {"containers": [{"name": "engine", "ports": [{"containerPort": 1}]}]}}),
        "spec.containers[engine].ports"
    )]
    #[case(
        json!({"spec": {"containers": [{"name": "engine", "command": ["sh"]}]}}),
        "spec.containers[engine].command"
    )]
    #[case(json!({"spec": {"containers": [{"name": "engine", "args": ["-x"]}]}}), "spec.containers[engine].args")]
    #[case(
        json!({"spec": {"containers": [{"name": "engine", "lifecycle": {}}]}}),
        "spec.containers[engine].lifecycle"
    )]
    #[case(
        json!({"spec": {"initContainers": [{"name": "lmetric-drain", "image": "x"}]}}),
        "spec.initContainers[lmetric-drain]"
    )]
    #[case(json!({"spec": {"volumes": [{"name": "lmetric-drain"}]}}), "spec.volumes[lmetric-drain]")]
    fn what_draining_and_selection_rest_on_is_refused(#[case] written: Value, #[case] field: &str) {
        let mut template = PodTemplateSpec::default();
        let error = merge(&mut template, &overlay(written)).unwrap_err();
        assert!(
            error.to_string().contains(&format!("podTemplate.{field}")),
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
