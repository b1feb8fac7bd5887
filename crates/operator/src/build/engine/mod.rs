//! The engines' Deployment. What is outside of the pod template may change with the operator; the template itself is
//! made by the builder that [`TemplateRevision`] names.

mod overlay;
mod revision;
mod v1;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use lmetric_api::pool::Component;

pub use revision::TemplateRevision;

use super::{BuildError, meta};
use crate::validated::{Strategy, Validated, Versions};

/// Beside starting and draining, a pod is scheduled, pulls its image and ends.
const PROGRESS_MARGIN_SECONDS: i64 = 300;
/// Old ReplicaSets that are kept for `kubectl rollout history`.
const HISTORY: i32 = 3;

/// The engines.
pub(super) fn build(validated: &Validated, versions: &Versions) -> Result<Deployment, BuildError> {
    let spec = &validated.pool.spec;
    let (type_, rolling_update) = match &validated.strategy {
        Strategy::Recreate => ("Recreate", None),
        Strategy::Rolling { surge, unavailable } => (
            "RollingUpdate",
            Some(RollingUpdateDeployment {
                max_surge: Some(surge.clone()),
                max_unavailable: Some(unavailable.clone()),
            }),
        ),
    };
    Ok(Deployment {
        metadata: meta::of_component(validated, Component::Engine),
        spec: DeploymentSpec {
            replicas: Some(spec.replicas),
            selector: meta::selector(validated, Component::Engine),
            strategy: Some(DeploymentStrategy {
                type_: Some(type_.to_owned()),
                rolling_update,
            }),
            min_ready_seconds: Some(spec.rollout.min_ready_seconds),
            paused: Some(spec.rollout.paused),
            progress_deadline_seconds: Some(progress_deadline(validated)),
            revision_history_limit: Some(HISTORY),
            template: template(validated, versions)?,
        },
        ..Deployment::default()
    })
}

fn template(validated: &Validated, versions: &Versions) -> Result<PodTemplateSpec, BuildError> {
    let Versions {
        template_revision,
        tool_image,
    } = versions;
    let mut template = match TemplateRevision::try_from(*template_revision)? {
        TemplateRevision::V1 => v1::template(validated, tool_image),
    };
    if let Some(changes) = &validated.overlay {
        overlay::merge(&mut template, changes)?;
    }
    Ok(template)
}

/// The API server wants it above `minReadySeconds`.
fn progress_deadline(validated: &Validated) -> i32 {
    let spec = &validated.pool.spec;
    let seconds = spec.lifecycle.startup_timeout.seconds_up()
        + spec.lifecycle.drain_timeout.seconds_up()
        + i64::from(spec.rollout.min_ready_seconds)
        + PROGRESS_MARGIN_SECONDS;
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn spec(changes: Value) -> Value {
        let deployment = build(&testing::pool(changes), &testing::versions()).unwrap();
        serde_json::to_value(deployment.spec).unwrap()
    }

    #[test]
    fn replicas_are_the_pools_and_the_deadline_covers_start_and_drain() {
        let built = spec(json!({
            "replicas": 16,
            "lifecycle": {"startupTimeout": "10m", "drainTimeout": "20s"},
            "rollout": {"minReadySeconds": 7, "paused": true},
        }));
        assert_eq!(built["replicas"], 16);
        assert_eq!(built["progressDeadlineSeconds"], 600 + 20 + 7 + 300);
        assert_eq!(built["minReadySeconds"], 7);
        assert_eq!(built["paused"], true);
        assert_eq!(spec(json!({"replicas": 0}))["replicas"], 0);
    }

    #[test]
    fn the_strategy_is_what_validation_resolved() {
        let strategy = |rollout: Value| spec(json!({"rollout": rollout}))["strategy"].clone();
        assert_eq!(
            strategy(json!({})),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
        );
        assert_eq!(
            strategy(json!({"strategy": "RollingUpdate", "maxUnavailable": "50%"})),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}})
        );
        assert_eq!(
            strategy(json!({"strategy": "Recreate"})),
            json!({"type": "Recreate"})
        );
    }

    #[test]
    fn nothing_but_the_spec_and_the_recorded_versions_reaches_the_template() {
        let validated = testing::pool(json!({}));
        let before = template(&validated, &testing::versions()).unwrap();
        let mut later = validated.clone();
        later.cluster.domain = "example.internal".to_owned();
        later.cluster.operator_namespace = "elsewhere".to_owned();
        later.cluster.picker_role = "another".to_owned();
        later.way_in.listeners = crate::validated::Listeners::Both;
        later.way_in.envoy_gateway = true;
        assert_eq!(template(&later, &testing::versions()).unwrap(), before);
    }

    #[test]
    fn a_builder_of_a_later_operator_is_an_error() {
        let versions = Versions {
            template_revision: TemplateRevision::NEWEST.number() + 1,
            ..testing::versions()
        };
        let error = build(&testing::pool(json!({})), &versions).unwrap_err();
        assert!(error.to_string().contains("install an operator"), "{error}");
    }

    #[test]
    fn the_overlay_is_the_last_word() {
        let built = spec(json!({"podTemplate": {
            "metadata": {"labels": {"team": "search"}},
            "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "engine", "image": "own"}]},
        }}));
        let template = &built["template"];
        assert_eq!(template["metadata"]["labels"]["team"], "search");
        assert_eq!(template["metadata"]["labels"]["lmetric.io/pool"], "qwen");
        assert_eq!(template["spec"]["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(template["spec"]["containers"][0]["image"], "own");
        assert_eq!(
            template["spec"]["containers"][0]["command"],
            json!(["vllm", "serve"])
        );
    }
}
