//! On which nodes engines run.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};

use crate::validated::Validated;

/// The pool's affinity, and in each of its alternatives for nodes the accelerator.
pub(super) fn affinity(validated: &Validated) -> Affinity {
    let accelerator = &validated.pool.spec.accelerator;
    let product = NodeSelectorRequirement {
        key: accelerator.label_key().to_owned(),
        operator: "In".to_owned(),
        values: Some(accelerator.label_values()),
    };
    let mut affinity = validated.engine_affinity.clone().unwrap_or_default();
    let nodes = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    let required = nodes
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions
            .get_or_insert_with(Vec::new)
            .push(product.clone());
    }
    affinity
}

/// The usual taint of nodes with accelerators, and what the pool adds.
pub(super) fn tolerations(validated: &Validated) -> Vec<Toleration> {
    let spec = &validated.pool.spec;
    let mut tolerations = vec![Toleration {
        key: Some(spec.accelerator.resource_name.clone()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    }];
    for own in &spec.placement.tolerations {
        if !tolerations.contains(own) {
            tolerations.push(own.clone());
        }
    }
    tolerations
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn terms(changes: Value) -> Value {
        let affinity = serde_json::to_value(affinity(&testing::pool(changes))).unwrap();
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            .clone()
    }

    #[rstest]
    #[case(json!({"class": "H20"}), "nvidia.com/gpu.product", json!(["NVIDIA-H20"]))]
    #[case(json!({"class": "H20-3e"}), "nvidia.com/gpu.product", json!(["NVIDIA-H20-3e"]))]
    #[case(
        json!({"class": "Custom", "productLabelKey": "cloud/gpu", "productLabelValues": ["h20-96", "h20-141"]}),
        "cloud/gpu",
        json!(["h20-96", "h20-141"])
    )]
    fn engines_run_on_nodes_with_their_accelerator(
        #[case] accelerator: Value,
        #[case] key: &str,
        #[case] values: Value,
    ) {
        assert_eq!(
            terms(json!({"accelerator": accelerator})),
            json!([{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}])
        );
    }

    #[test]
    fn each_alternative_of_the_pools_own_affinity_needs_the_accelerator_too() {
        let zone =
            |zone: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        let terms = terms(json!({"placement": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone("a"), zone("b")]},
        }}}}));
        for (term, zone) in terms.as_array().unwrap().iter().zip(["a", "b"]) {
            assert_eq!(term["matchExpressions"][0]["values"], json!([zone]));
            assert_eq!(term["matchExpressions"][1]["values"], json!(["NVIDIA-H20"]));
        }
    }

    #[test]
    fn the_taint_of_accelerators_is_tolerated() {
        let own = json!({"key": "team", "operator": "Exists"});
        let usual = json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
        let built = tolerations(&testing::pool(
            json!({"placement": {"tolerations": [own, usual]}}),
        ));
        assert_eq!(serde_json::to_value(built).unwrap(), json!([usual, own]));
    }
}
