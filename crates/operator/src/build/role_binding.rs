//! The RoleBinding of pickers: they watch pods and their ConfigMap.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use lmetric_api::pool::Component;

use super::meta;
use crate::validated::Validated;

/// Binds the pickers' account to the chart's ClusterRole, in the pool's namespace only.
pub(super) fn build(validated: &Validated) -> RoleBinding {
    RoleBinding {
        metadata: meta::of_component(validated, Component::Picker),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: validated.cluster.picker_role.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: Component::Picker.object_name(&validated.name),
            namespace: Some(validated.namespace.clone()),
            ..Subject::default()
        }]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn pickers_get_the_charts_role_in_their_namespace() {
        let built = serde_json::to_value(build(&testing::pool(json!({})))).unwrap();
        assert_eq!(
            built["roleRef"],
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lmetric-picker"})
        );
        assert_eq!(
            built["subjects"],
            json!([{"kind": "ServiceAccount", "name": "qwen-picker", "namespace": "models"}])
        );
    }
}
