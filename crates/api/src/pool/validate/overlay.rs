//! What `podTemplate` may not change, because the rest of the pool relies on it.

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};

use super::{Invalid, problem};
use crate::pool::{
    names::{ENGINE_CONTAINER, label},
    refused,
};

const ROOT: &str = "spec.podTemplate";

pub(super) fn check(template: &PodTemplateSpec, found: &mut Vec<Invalid>) {
    let labels = template
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.labels.as_ref());
    for key in [label::POOL, label::COMPONENT] {
        if labels.is_some_and(|labels| labels.contains_key(key)) {
            found.push(Invalid::new(
                format!("{ROOT}.metadata.labels[{key}]"),
                "is what Services and policies find the engines by",
                "remove it",
            ));
        }
    }
    let annotations = template
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.annotations.as_ref());
    for key in annotations.into_iter().flat_map(|annotations| annotations.keys()) {
        if key.starts_with("lmetric.io/") {
            found.push(Invalid::new(
                format!("{ROOT}.metadata.annotations[{key}]"),
                "is the operator's own",
                "remove it, or name it after your own domain",
            ));
        }
    }
    let Some(spec) = &template.spec else {
        return;
    };
    if spec.termination_grace_period_seconds.is_some() {
        found.push(Invalid::new(
            format!("{ROOT}.spec.terminationGracePeriodSeconds"),
            "is what draining takes and a margin",
            "remove it and use spec.lifecycle.drainTimeout",
        ));
    }
    for (at, container) in spec.containers.iter().enumerate() {
        let field = format!("{ROOT}.spec.containers[{at}]");
        match container.name.as_str() {
            "" => found.push(Invalid::new(
                field,
                "has no name",
                format!(
                    "name it {ENGINE_CONTAINER} to change the engine's container, or otherwise to add one"
                ),
            )),
            ENGINE_CONTAINER => check_engine(container, &field, found),
            _ => {}
        }
    }
}

fn check_engine(container: &Container, field: &str, found: &mut Vec<Invalid>) {
    for (part, set, instead) in [
        ("image", container.image.is_some(), "use spec.engine.image"),
        (
            "command",
            is_set(container.command.as_ref()),
            "use an image whose entry is vLLM's own",
        ),
        ("args", is_set(container.args.as_ref()), "use spec.engine.args"),
        (
            "ports",
            is_set(container.ports.as_ref()),
            "use spec.engine.port and spec.engine.kvEvents",
        ),
        (
            "lifecycle",
            container.lifecycle.is_some(),
            "use spec.lifecycle; its hook drains the engine",
        ),
    ] {
        if set {
            found.push(Invalid::new(
                format!("{field}.{part}"),
                "is set by the operator",
                format!("remove it and {instead}"),
            ));
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(refused) = refused::variable(&variable.name) {
            found.push(Invalid::new(
                format!("{field}.env[{}]", variable.name),
                problem(refused),
                refused.remedy,
            ));
        }
    }
}

fn is_set<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}
