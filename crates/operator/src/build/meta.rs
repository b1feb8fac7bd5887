//! Names, labels and owners: how an object says whose it is.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource as _;
use lmetric_api::pool::{Component, InferencePool, names::label};

use crate::validated::Validated;

/// Metadata of the component's object under the component's own name.
pub(super) fn of_component(validated: &Validated, component: Component) -> ObjectMeta {
    named(
        validated,
        component.object_name(&validated.name),
        labels(validated, component),
    )
}

/// Metadata of an object of the pool as a whole, which bears the pool's own name.
pub(super) fn of_pool(validated: &Validated) -> ObjectMeta {
    let mut labels = labels(validated, Component::Engine);
    labels.remove(label::COMPONENT);
    named(validated, validated.name.clone(), labels)
}

/// Metadata under `name`, owned by the pool.
pub(super) fn named(validated: &Validated, name: String, labels: BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(validated.namespace.clone()),
        labels: Some(labels),
        owner_references: Some(vec![owner(validated)]),
        ..ObjectMeta::default()
    }
}

/// What an object of the component is labelled with.
pub(super) fn labels(validated: &Validated, component: Component) -> BTreeMap<String, String> {
    let mut labels = selector_labels(validated, component);
    labels.insert(label::NAME.to_owned(), label::NAME_VALUE.to_owned());
    labels.insert(label::MANAGED_BY.to_owned(), label::MANAGED_BY_VALUE.to_owned());
    labels
}

/// The labels that select the component's pods. A Deployment's selector never changes, so neither do these.
pub(super) fn selector_labels(validated: &Validated, component: Component) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::POOL.to_owned(), validated.name.clone()),
        (label::COMPONENT.to_owned(), component.as_str().to_owned()),
    ])
}

/// The component's pods.
pub(super) fn selector(validated: &Validated, component: Component) -> LabelSelector {
    LabelSelector {
        match_labels: Some(selector_labels(validated, component)),
        ..LabelSelector::default()
    }
}

fn owner(validated: &Validated) -> OwnerReference {
    OwnerReference {
        api_version: InferencePool::api_version(&()).into_owned(),
        kind: InferencePool::kind(&()).into_owned(),
        name: validated.name.clone(),
        uid: validated.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn the_pool_owns_and_the_selector_is_component_and_pool() {
        let validated = testing::pool(json!({}));
        assert_eq!(
            serde_json::to_value(of_component(&validated, Component::Picker)).unwrap(),
            json!({
                "name": "qwen-picker",
                "namespace": "models",
                "labels": {
                    "app.kubernetes.io/component": "picker",
                    "app.kubernetes.io/managed-by": "lmetric-operator",
                    "app.kubernetes.io/name": "lmetric",
                    "lmetric.io/pool": "qwen",
                },
                "ownerReferences": [{
                    "apiVersion": "lmetric.io/v1alpha1",
                    "kind": "InferencePool",
                    "name": "qwen",
                    "uid": "0b5e",
                    "controller": true,
                    "blockOwnerDeletion": true,
                }],
            })
        );
        assert_eq!(
            serde_json::to_value(selector(&validated, Component::Engine)).unwrap(),
            json!({"matchLabels": {"app.kubernetes.io/component": "engine", "lmetric.io/pool": "qwen"}})
        );
    }
}
