//! On which nodes pods run, and what they take there.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Affinity, Toleration, TopologySpreadConstraint},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{loose::Loose, schema};

/// How one engine is spread over accelerators of one node. An engine needs tensor × pipeline × data of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Parallelism {
    /// Accelerators that share each layer. Default 1.
    #[schemars(range(min = 1, max = 64))]
    pub tensor: i32,
    /// Stages that the layers are divided into. Default 1.
    #[schemars(range(min = 1, max = 64))]
    pub pipeline: i32,
    /// Copies of the model in one engine, each a rank with a port and a KV cache of its own. Default 1.
    #[schemars(range(min = 1, max = 64))]
    pub data: i32,
}

impl Parallelism {
    /// Accelerators that one engine needs.
    pub const fn accelerators(self) -> i32 {
        self.tensor * self.pipeline * self.data
    }
}

impl Default for Parallelism {
    fn default() -> Self {
        Self {
            tensor: 1,
            pipeline: 1,
            data: 1,
        }
    }
}

/// Which accelerators engines run on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Accelerator {
    /// Kind of accelerator: H20 (96 GB), H20-3e (141 GB) or Custom, which needs productLabelKey and
    /// productLabelValues. Default H20.
    pub class: AcceleratorClass,
    /// Label of nodes that tells the accelerator's product. Default nvidia.com/gpu.product.
    #[schemars(length(max = 317))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self == '' || self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')")
            .message("is no label key; write NAME or DOMAIN/NAME, such as nvidia.com/gpu.product"),
    ]))]
    pub product_label_key: String,
    /// Values of that label, any of which will do. Default: the class's own, such as NVIDIA-H20.
    #[schemars(length(max = 32), inner(length(min = 1, max = 63)))]
    #[schemars(extend(
        "x-kubernetes-list-type" = "set",
        "x-kubernetes-validations" = [
            Rule::new("self.all(v, v.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$'))")
                .message("holds something that cannot be a label's value; use letters, digits, dots, dashes and underscores, as kubectl get nodes --show-labels shows them"),
        ],
    ))]
    pub product_label_values: Vec<String>,
    /// Resource that pods ask for to get an accelerator. Default nvidia.com/gpu.
    #[schemars(length(min = 1, max = 317))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')")
            .message("is no extended resource; write DOMAIN/NAME, such as nvidia.com/gpu"),
    ]))]
    pub resource_name: String,
    /// Accelerators of one node. An engine cannot have more. Default 8.
    #[schemars(range(min = 1, max = 64))]
    pub gpus_per_node: i32,
}

impl Default for Accelerator {
    fn default() -> Self {
        Self {
            class: AcceleratorClass::H20,
            product_label_key: String::new(),
            product_label_values: Vec::new(),
            resource_name: "nvidia.com/gpu".to_owned(),
            gpus_per_node: 8,
        }
    }
}

/// Kind of accelerator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AcceleratorClass {
    /// NVIDIA H20 with 96 GB.
    #[default]
    H20,
    /// NVIDIA H20 with 141 GB.
    #[serde(rename = "H20-3e")]
    H20Large,
    /// Described by the labels in the pool.
    Custom,
}

impl AcceleratorClass {
    /// As the pool writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::H20 => "H20",
            Self::H20Large => "H20-3e",
            Self::Custom => "Custom",
        }
    }
}

impl Accelerator {
    /// Label of nodes that tells the product.
    pub fn label_key(&self) -> &str {
        if self.product_label_key.is_empty() {
            "nvidia.com/gpu.product"
        } else {
            &self.product_label_key
        }
    }

    /// Values of that label that will do.
    pub fn label_values(&self) -> Vec<String> {
        match (self.product_label_values.as_slice(), self.class) {
            ([], AcceleratorClass::H20) => vec!["NVIDIA-H20".to_owned()],
            ([], AcceleratorClass::H20Large) => vec!["NVIDIA-H20-3e".to_owned()],
            (values, _) => values.to_vec(),
        }
    }
}

/// What the engine's container gets beside accelerators, as request and as limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EngineResources {
    /// Processor cores. Default "16".
    #[schemars(schema_with = "schema::quantity")]
    pub cpu: Quantity,
    /// Main memory, shared memory included. Default 128Gi.
    #[schemars(schema_with = "schema::quantity")]
    pub memory: Quantity,
    /// Size of /dev/shm, which counts against memory. Default 16Gi.
    #[schemars(schema_with = "schema::quantity")]
    pub shared_memory: Quantity,
}

impl Default for EngineResources {
    fn default() -> Self {
        Self {
            cpu: schema::amount("16"),
            memory: schema::amount("128Gi"),
            shared_memory: schema::amount("16Gi"),
        }
    }
}

/// What a container asks for and may use at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// What the scheduler sets aside, by resource name. Default: the operator's own choice.
    #[schemars(schema_with = "schema::quantities")]
    pub requests: BTreeMap<String, Quantity>,
    /// What the container may use at most, by resource name. Default: the operator's own choice.
    #[schemars(schema_with = "schema::quantities")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Where pods may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// Taints of nodes that the pods accept.
    #[schemars(schema_with = "schema::list::<Toleration, 32>")]
    pub tolerations: Vec<Toleration>,
    /// Labels that a node must have.
    #[schemars(schema_with = "schema::labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Affinity of the pods, as Kubernetes writes it; the accelerator's own node affinity is added to it.
    pub affinity: Loose<Affinity>,
    /// How the pods are spread over nodes or zones.
    #[schemars(schema_with = "schema::list::<TopologySpreadConstraint, 16>")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pods. Default: the cluster's own default.
    #[schemars(length(max = 253))]
    #[schemars(extend("x-kubernetes-validations" = [schema::name_of("a priority class")]))]
    pub priority_class_name: String,
    /// Runtime class of the pods, such as nvidia. Default: the cluster's own default.
    #[schemars(length(max = 253))]
    #[schemars(extend("x-kubernetes-validations" = [schema::name_of("a runtime class")]))]
    pub runtime_class_name: String,
    /// Scheduler that places the pods. Default: the cluster's own default.
    #[schemars(length(max = 253))]
    pub scheduler_name: String,
    /// Whether pods use the node's network. Their ports are then the node's own, so that a node holds one of them.
    /// Default false.
    pub host_network: bool,
}

/// Rules of `spec.accelerator`, from the specification down.
pub(super) fn accelerator_rules() -> [Rule; 2] {
    [
        Rule::new("self.accelerator.class != 'Custom' || (self.accelerator.productLabelKey != '' && self.accelerator.productLabelValues.size() > 0)")
            .message("class Custom needs productLabelKey and productLabelValues; take them from the labels of your nodes (kubectl get nodes --show-labels)")
            .field_path(".accelerator"),
        Rule::new("self.accelerator.class == 'Custom' || self.accelerator.productLabelKey == '' || self.accelerator.productLabelValues.size() > 0")
            .message("productLabelKey without productLabelValues matches no node; list the values that your nodes have under this label")
            .field_path(".accelerator.productLabelValues"),
    ]
}

/// Rules of `spec.resources`, from the specification down.
pub(super) fn resource_rules() -> Vec<Rule> {
    let positive = |field: &str| {
        Rule::new(format!(
            "!isQuantity(string(self.resources.{field})) || quantity(string(self.resources.{field})).isGreaterThan(quantity('0'))"
        ))
        .message("must be more than 0; write a quantity such as 16 or 128Gi")
        .field_path(format!(".resources.{field}"))
    };
    vec![
        positive("cpu"),
        positive("memory"),
        positive("sharedMemory"),
        Rule::new(
            "!isQuantity(string(self.resources.memory)) || !isQuantity(string(self.resources.sharedMemory)) || \
             quantity(string(self.resources.sharedMemory)).isLessThan(quantity(string(self.resources.memory)))",
        )
        .message("sharedMemory counts against memory and has to be smaller; lower it or raise memory")
        .field_path(".resources.sharedMemory"),
    ]
}
