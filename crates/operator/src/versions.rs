//! Which builder and which drain tool make a pool's engines.
//!
//! An upgrade of the operator never rolls engines of an unchanged pool, so what made them is kept: on the engines'
//! Deployment, with the hash of the template, and in the pool's status. It moves to the newest only when the
//! template changes anyhow because the pool's spec did. A change of replicas changes no template.

use k8s_openapi::api::apps::v1::Deployment;
use lmetric_api::pool::{Component, InferencePool, names::annotation};
use serde_json::Value;

use crate::{
    apply::hash,
    build::{self, BuildError, TEMPLATE_REVISION},
    resources::{Prepared, Resources},
    validated::{Images, Validated, Versions},
};

/// Annotation of the engines' Deployment: image of the drain tool.
pub const TOOL_IMAGE: &str = "lmetric.io/tool-image";
/// Annotation of the engines' Deployment: hash of the template.
pub const TEMPLATE: &str = "lmetric.io/template";

/// What a pool's objects are and what made its engines.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// The objects; the engines' Deployment says what made it.
    pub resources: Resources<Prepared>,
    /// What made the engines.
    pub versions: Versions,
    /// Hash of the engines' template.
    pub template: String,
}

/// Builds with what made the running engines, or with the newest when their template changes anyhow.
pub fn build(
    validated: &Validated,
    images: &Images,
    tool_image: &str,
    engines: Option<&Deployment>,
) -> Result<Built, BuildError> {
    let newest = Versions {
        template_revision: TEMPLATE_REVISION,
        tool_image: tool_image.to_owned(),
    };
    let Some(used) = used(&validated.pool, engines) else {
        return with(validated, images, newest);
    };
    let unchanged = validated
        .pool
        .status
        .as_ref()
        .and_then(|status| status.observed_generation)
        == validated.pool.metadata.generation
        && validated.pool.metadata.generation.is_some();
    let built = with(validated, images, used.clone())?;
    let running = engines.and_then(|engines| note(engines, TEMPLATE));
    if unchanged || used == newest || running.is_some_and(|running| running == built.template) {
        return Ok(built);
    }
    with(validated, images, newest)
}

/// What made the running engines, if anything is known of it.
fn used(pool: &InferencePool, engines: Option<&Deployment>) -> Option<Versions> {
    let noted = engines.and_then(|engines| {
        Some(Versions {
            template_revision: note(engines, annotation::TEMPLATE_REVISION)?.parse().ok()?,
            tool_image: note(engines, TOOL_IMAGE)?.to_owned(),
        })
    });
    let told = || {
        let status = pool.status.as_ref()?;
        Some(Versions {
            template_revision: status.template_revision?,
            tool_image: status.tool_image.clone()?,
        })
    };
    noted.or_else(told)
}

/// The value of an annotation of the Deployment itself.
pub fn note<'a>(deployment: &'a Deployment, key: &str) -> Option<&'a str> {
    deployment
        .metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}

fn with(validated: &Validated, images: &Images, versions: Versions) -> Result<Built, BuildError> {
    let mut resources = build::build(validated, images, &versions)?;
    let name = Component::Engine.object_name(&validated.name);
    let mut template = String::new();
    for deployment in &mut resources.deployments {
        if deployment.metadata.name.as_ref() != Some(&name) {
            continue;
        }
        let json = serde_json::to_value(&deployment.spec.template).unwrap_or(Value::Null);
        template = hash(&json);
        let notes = deployment.metadata.annotations.get_or_insert_default();
        notes.insert(
            annotation::TEMPLATE_REVISION.to_owned(),
            versions.template_revision.to_string(),
        );
        notes.insert(TOOL_IMAGE.to_owned(), versions.tool_image.clone());
        notes.insert(TEMPLATE.to_owned(), template.clone());
    }
    Ok(Built {
        resources,
        versions,
        template,
    })
}

#[cfg(test)]
mod frozen;
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing;

    fn engines(built: &Built) -> Deployment {
        built
            .resources
            .deployments
            .iter()
            .find(|deployment| deployment.metadata.name.as_deref() == Some("qwen-engine"))
            .cloned()
            .expect("engines are built")
    }

    fn after(change: &Value, generation: i64, running: &Deployment, tool: &str) -> Built {
        let mut validated = testing::validated(change);
        let mut pool = (*validated.pool).clone();
        pool.metadata.generation = Some(generation);
        pool.status = Some(lmetric_api::pool::InferencePoolStatus {
            observed_generation: Some(1),
            ..Default::default()
        });
        validated.pool = std::sync::Arc::new(pool);
        build(&validated, &testing::images(), tool, Some(running)).expect("builds")
    }

    #[test]
    fn an_upgrade_of_the_operator_rolls_no_engine_of_an_unchanged_pool() {
        let first = build(
            &testing::validated(&json!({})),
            &testing::images(),
            "tool:1",
            None,
        )
        .expect("builds");
        let running = engines(&first);
        let later = after(&json!({}), 1, &running, "tool:2");
        assert_eq!(
            (later.template, later.versions.tool_image),
            (first.template, "tool:1".to_owned())
        );
    }

    #[test]
    fn a_change_of_replicas_keeps_the_tool_and_a_change_of_the_template_moves_it() {
        let first = build(
            &testing::validated(&json!({})),
            &testing::images(),
            "tool:1",
            None,
        )
        .expect("builds");
        let running = engines(&first);
        let scaled = after(&json!({"replicas": 7}), 2, &running, "tool:2");
        assert_eq!(scaled.template, first.template);
        let changed = after(&json!({"engine": {"maxNumSeqs": 17}}), 2, &running, "tool:2");
        assert_ne!(changed.template, first.template);
        assert_eq!(changed.versions.tool_image, "tool:2");
    }
}
