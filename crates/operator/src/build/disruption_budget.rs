//! PodDisruptionBudgets: how many pods evictions may take away at once.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use lmetric_api::pool::{Component, IntOrString};

use super::meta;
use crate::validated::Validated;

/// One for engines always; for pickers and Envoy where there are several, since a budget for a single pod blocks
/// the draining of its node.
pub(super) fn build(validated: &Validated) -> Vec<PodDisruptionBudget> {
    let spec = &validated.pool.spec;
    let mut budgets = vec![budget(
        validated,
        Component::Engine,
        spec.disruption.max_unavailable.clone(),
    )];
    if spec.picker.replicas > 1 {
        budgets.push(budget(validated, Component::Picker, IntOrString::Int(1)));
    }
    if spec
        .gateway
        .standalone
        .as_ref()
        .is_some_and(|envoy| envoy.replicas > 1)
    {
        budgets.push(budget(validated, Component::Envoy, IntOrString::Int(1)));
    }
    budgets
}

fn budget(validated: &Validated, component: Component, max_unavailable: IntOrString) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: meta::of_component(validated, component),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(max_unavailable),
            selector: Some(meta::selector(validated, component)),
            // an engine that never gets ready must not hold its node
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    fn names(spec: serde_json::Value) -> Vec<String> {
        build(&testing::pool(spec))
            .into_iter()
            .map(|budget| budget.metadata.name.unwrap())
            .collect()
    }

    #[test]
    fn a_single_picker_or_envoy_has_no_budget() {
        assert_eq!(names(json!({})), ["qwen-engine"]);
        let one = json!({"gateway": {"standalone": {"replicas": 1}}});
        assert_eq!(names(one), ["qwen-engine"]);
        let several = json!({"picker": {"replicas": 2}, "gateway": {"standalone": {}}});
        assert_eq!(names(several), ["qwen-engine", "qwen-picker", "qwen-envoy"]);
    }

    #[test]
    fn engines_that_are_not_ready_may_always_be_evicted() {
        let budgets = build(&testing::pool(json!({"disruption": {"maxUnavailable": "25%"}})));
        assert_eq!(
            serde_json::to_value(&budgets[0].spec).unwrap(),
            json!({
                "maxUnavailable": "25%",
                "selector": {"matchLabels": {"app.kubernetes.io/component": "engine", "lmetric.io/pool": "qwen"}},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            })
        );
    }
}
