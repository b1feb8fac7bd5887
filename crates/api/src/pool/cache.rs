//! Where downloaded models and compiled kernels stay between starts.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Storage for model files and compile caches, mounted into every engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Cache {
    /// What holds the cache: None (each pod downloads anew), PVC (a claim that the operator makes), ExistingClaim
    /// (claimName) or HostPath (path on each node). Default None.
    #[serde(rename = "type")]
    pub kind: CacheType,
    /// Size of the claim. It can grow, never shrink. Only used with type PVC. Default 200Gi.
    #[schemars(schema_with = "schema::quantity")]
    pub size: Quantity,
    /// Storage class of the claim, fixed once the claim exists. Only used with type PVC. Default: the cluster's own
    /// default.
    #[schemars(length(max = 253))]
    #[schemars(extend("x-kubernetes-validations" = [schema::name_of("a storage class")]))]
    pub storage_class_name: String,
    /// How nodes may mount the claim, fixed once the claim exists. Only used with type PVC. Default ReadWriteMany.
    pub access_mode: AccessMode,
    /// Name of a claim of this namespace. Needed with type ExistingClaim, refused with every other.
    #[schemars(length(max = 253))]
    #[schemars(extend("x-kubernetes-validations" = [schema::name_of("a claim")]))]
    pub claim_name: String,
    /// Absolute path of a folder on each node. Needed with type HostPath, refused with every other.
    #[schemars(length(max = 1024))]
    pub path: String,
    /// Whether the claim stays when the pool is deleted. Only used with type PVC. Default false.
    pub retain: bool,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            kind: CacheType::None,
            size: schema::amount("200Gi"),
            storage_class_name: String::new(),
            access_mode: AccessMode::ReadWriteMany,
            claim_name: String::new(),
            path: String::new(),
            retain: false,
        }
    }
}

/// What holds the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CacheType {
    /// Nothing.
    #[default]
    None,
    /// A claim that the operator makes.
    #[serde(rename = "PVC")]
    Pvc,
    /// A claim that exists.
    ExistingClaim,
    /// A folder of the node.
    HostPath,
}

/// How nodes may mount a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// By any number of nodes.
    #[default]
    ReadWriteMany,
    /// By one node.
    ReadWriteOnce,
    /// By one pod.
    ReadWriteOncePod,
}

impl AccessMode {
    /// As a claim's accessModes wants it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}

/// Rules of `spec.cache`, from the specification down.
pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule::new("self.cache.type != 'ExistingClaim' || self.cache.claimName != ''")
            .message("type ExistingClaim needs claimName, the claim that holds the cache")
            .field_path(".cache.claimName"),
        Rule::new("self.cache.type == 'ExistingClaim' || self.cache.claimName == ''")
            .message("claimName is only for type ExistingClaim; set type: ExistingClaim or remove claimName")
            .field_path(".cache.claimName"),
        Rule::new("self.cache.type != 'HostPath' || self.cache.path != ''")
            .message("type HostPath needs path, an absolute path on each node such as /mnt/models")
            .field_path(".cache.path"),
        Rule::new("self.cache.type == 'HostPath' || self.cache.path == ''")
            .message("path is only for type HostPath; set type: HostPath or remove path")
            .field_path(".cache.path"),
        Rule::new("self.cache.path == '' || (self.cache.path.matches('^/[^/]') && !self.cache.path.contains('..'))")
            .message("is no absolute path below /; write something like /mnt/models, without '..'")
            .field_path(".cache.path"),
        Rule::new("self.cache.type != 'PVC' || !isQuantity(string(self.cache.size)) || quantity(string(self.cache.size)).isGreaterThan(quantity('0'))")
            .message("must be more than 0; write a quantity such as 200Gi")
            .field_path(".cache.size"),
        Rule::new("self.cache.type != 'PVC' || oldSelf.cache.type != 'PVC' || self.cache.storageClassName == oldSelf.cache.storageClassName")
            .message("the storage class of a claim cannot change; set type: None, wait until the claim is gone and set PVC again, or make a new pool")
            .field_path(".cache.storageClassName"),
        Rule::new("self.cache.type != 'PVC' || oldSelf.cache.type != 'PVC' || self.cache.accessMode == oldSelf.cache.accessMode")
            .message("the access mode of a claim cannot change; set type: None, wait until the claim is gone and set PVC again, or make a new pool")
            .field_path(".cache.accessMode"),
        Rule::new(
            "self.cache.type != 'PVC' || oldSelf.cache.type != 'PVC' || !isQuantity(string(self.cache.size)) || !isQuantity(string(oldSelf.cache.size)) || \
             !quantity(string(self.cache.size)).isLessThan(quantity(string(oldSelf.cache.size)))",
        )
        .message("a claim cannot shrink; write the old size or more")
        .field_path(".cache.size"),
    ]
}
