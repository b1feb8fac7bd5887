//! Names, labels and annotations that the parts of a pool find each other by.

/// API group of the pool.
pub const GROUP: &str = "lmetric.io";
/// Field manager of everything that the operator writes.
pub const FIELD_MANAGER: &str = "lmetric-operator";
/// Name of the container that runs the engine.
pub const ENGINE_CONTAINER: &str = "engine";
/// A pool's name may be so long, since names of its children and label values grow from it.
pub const MAX_NAME: usize = 40;

/// Keys and values of labels.
pub mod label {
    /// Which pool an object belongs to; with [`COMPONENT`] the selector of its pods.
    pub const POOL: &str = "lmetric.io/pool";
    /// Which part of the pool.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// Name of the application.
    pub const NAME: &str = "app.kubernetes.io/name";
    /// Who manages the object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Value of [`NAME`].
    pub const NAME_VALUE: &str = "lmetric";
    /// Value of [`MANAGED_BY`].
    pub const MANAGED_BY_VALUE: &str = "lmetric-operator";
}

/// Keys of annotations.
pub mod annotation {
    /// Hash of the payload that was last applied.
    pub const APPLIED: &str = "lmetric.io/applied";
    /// Version of the builder that made an engine's template.
    pub const TEMPLATE_REVISION: &str = "lmetric.io/template-revision";
}

/// A part of a pool with pods of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// Pods that run the model.
    Engine,
    /// Pods that pick an engine for each request.
    Picker,
    /// Pods of the standalone Envoy.
    Envoy,
}

impl Component {
    /// Value of the component label, and the suffix of names.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Picker => "picker",
            Self::Envoy => "envoy",
        }
    }

    /// Name of this component's objects in the pool named `pool`.
    pub fn object_name(self, pool: &str) -> String {
        format!("{pool}-{}", self.as_str())
    }
}

/// Name of the claim that holds the model cache of the pool named `pool`.
pub fn cache_claim(pool: &str) -> String {
    format!("{pool}-cache")
}
