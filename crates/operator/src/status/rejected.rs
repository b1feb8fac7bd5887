//! The API server lets no pod of a Deployment be made: what objects, and which field of the pool it is about.

use k8s_openapi::api::apps::v1::Deployment;
use lmetric_api::pool::{Component, InferencePoolSpec, reason};

use super::{fields::Fields, pod::Finding};

/// Why no pod of the component can be made, if that is so.
pub(super) fn rejected(
    running: &Deployment,
    component: Component,
    spec: &InferencePoolSpec,
) -> Option<Finding> {
    let conditions = running.status.as_ref()?.conditions.as_ref()?;
    let failure = conditions.iter().find(|condition| {
        condition.type_.as_deref() == Some("ReplicaFailure") && condition.status.as_deref() == Some("True")
    })?;
    let words = failure.message.as_deref().unwrap_or("no reason is given");
    Some(Finding {
        reason: reason::PODS_REJECTED,
        message: format!("no pod can be made: {words}; {}", remedy(words, component, spec)),
    })
}

/// `words` are those of the API server's admission plugins.
fn remedy(words: &str, component: Component, spec: &InferencePoolSpec) -> String {
    let fields = Fields::of(component);
    if words.contains("exceeded quota") {
        format!(
            "raise the namespace's quota (kubectl get resourcequota), or lower {} or {}",
            fields.count, fields.resources
        )
    } else if words.contains("failed quota") || words.contains("per Container") || words.contains("per Pod") {
        format!(
            "fit {} to the namespace's LimitRange and quota (kubectl describe limitrange,resourcequota)",
            fields.resources
        )
    } else if words.contains("violates PodSecurity") {
        "allow it (label pod-security.kubernetes.io/enforce of the namespace), or set a securityContext in spec.podTemplate"
            .to_owned()
    } else if words.contains("PriorityClass") || words.contains("priority class") {
        match fields.priority_class {
            Some(field) => {
                format!("create that PriorityClass, or correct {field} (kubectl get priorityclasses)")
            }
            None => "create that PriorityClass (kubectl get priorityclasses)".to_owned(),
        }
    } else if words.contains("RuntimeClass") {
        match fields.runtime_class {
            Some(field) => {
                format!("create that RuntimeClass, or correct {field} (kubectl get runtimeclasses)")
            }
            None => "create that RuntimeClass (kubectl get runtimeclasses)".to_owned(),
        }
    } else if words.contains("service account") || words.contains("serviceaccount") {
        account(component, spec)
    } else {
        "correct what the quota, Pod Security, the LimitRange or the webhook objects to".to_owned()
    }
}

fn account(component: Component, spec: &InferencePoolSpec) -> String {
    if component == Component::Engine && !spec.service_account_name.is_empty() {
        "create that ServiceAccount in this namespace, correct spec.serviceAccountName, or remove it: the pool then makes one of its own"
            .to_owned()
    } else {
        "the operator makes that ServiceAccount again by itself; look at what deletes it (kubectl get serviceaccounts)"
            .to_owned()
    }
}
