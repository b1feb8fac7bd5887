//! Fields of the pool that a component's pods come from, for remedies.

use lmetric_api::pool::Component;

/// Where a person changes what a component's pods ask for. `None`: the pool has no field for it.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    pub(super) count: &'static str,
    pub(super) image: &'static str,
    pub(super) pull_secrets: Option<&'static str>,
    pub(super) memory: &'static str,
    pub(super) resources: &'static str,
    pub(super) priority_class: Option<&'static str>,
    pub(super) runtime_class: Option<&'static str>,
}

impl Fields {
    /// Those of a component.
    pub const fn of(component: Component) -> Self {
        match component {
            Component::Engine => Self {
                count: "spec.replicas",
                image: "spec.engine.image",
                pull_secrets: Some("spec.engine.pullSecrets"),
                memory: "spec.resources.memory",
                resources: "spec.resources",
                priority_class: Some("spec.placement.priorityClassName"),
                runtime_class: Some("spec.placement.runtimeClassName"),
            },
            Component::Picker => Self {
                count: "spec.picker.replicas",
                image: "spec.picker.image",
                pull_secrets: Some("spec.picker.pullSecrets"),
                memory: "memory in spec.picker.resources",
                resources: "spec.picker.resources",
                priority_class: Some("spec.picker.placement.priorityClassName"),
                runtime_class: Some("spec.picker.placement.runtimeClassName"),
            },
            Component::Envoy => Self {
                count: "spec.gateway.standalone.replicas",
                image: "spec.gateway.standalone.image",
                pull_secrets: None,
                memory: "memory in spec.gateway.standalone.resources",
                resources: "spec.gateway.standalone.resources",
                priority_class: None,
                runtime_class: None,
            },
        }
    }
}
