//! The object itself.

#![expect(
    clippy::duplicated_attributes,
    reason = "each printed column has a type and a path of its own"
)]

use kube::{CustomResource, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::{
    cache::{self, Cache},
    engine::Engine,
    gateway::{self, Gateway, Monitoring, NetworkPolicySpec},
    lifecycle::{self, Disruption, Lifecycle, Probes, Rollout},
    loose::Loose,
    model::Model,
    placement::{self, Accelerator, EngineResources, Parallelism, Placement},
    routing::{Picker, Routing},
    schema,
    status::InferencePoolStatus,
};

/// What a pool should be.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "lmetric.io",
    version = "v1alpha1",
    kind = "InferencePool",
    plural = "inferencepools",
    singular = "inferencepool",
    shortname = "lmpool",
    category = "lmetric",
    namespaced,
    status = "InferencePoolStatus",
    derive = "PartialEq",
    doc = "A model served by a fleet of vLLM engines, with pickers that send each request to the engine that is best for it.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Model",
        type_ = "string",
        json_path = ".spec.model.uri",
        description = "Where the model comes from"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether requests are served"
    ),
    printcolumn(
        name = "Updated",
        type_ = "integer",
        json_path = ".status.updatedReplicas",
        description = "Engines of the current template"
    ),
    printcolumn(
        name = "Policy",
        type_ = "string",
        json_path = ".spec.routing.policy",
        description = "How an engine is chosen"
    ),
    printcolumn(
        name = "GPUs",
        type_ = "integer",
        json_path = ".status.gpus",
        description = "Accelerators that the engines hold"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why the pool is ready or not"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the pool was made"
    ),
    printcolumn(
        name = "URL",
        type_ = "string",
        json_path = ".status.url",
        description = "Address for requests",
        priority = 1
    ),
    printcolumn(
        name = "Image",
        type_ = "string",
        json_path = ".spec.engine.image",
        description = "Image of the engines",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules()))]
pub struct InferencePoolSpec {
    /// The model and how engines load it.
    pub model: Model,
    /// The vLLM that serves the model.
    pub engine: Engine,
    /// How one engine is spread over accelerators.
    #[serde(default)]
    pub parallelism: Parallelism,
    /// Which accelerators engines run on.
    #[serde(default)]
    pub accelerator: Accelerator,
    /// Engines. Autoscalers and kubectl scale write it through the scale subresource; 0 stops serving. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_024))]
    pub replicas: i32,
    /// What each engine gets beside accelerators.
    #[serde(default)]
    pub resources: EngineResources,
    /// Where engines may run.
    #[serde(default)]
    pub placement: Placement,
    /// Service account of the engines. Default: one of the pool's own, without rights.
    #[serde(default)]
    #[schemars(length(max = 253))]
    #[schemars(extend("x-kubernetes-validations" = [schema::name_of("a service account")]))]
    pub service_account_name: String,
    /// Where downloaded models and compiled kernels stay between starts.
    #[serde(default)]
    pub cache: Cache,
    /// How long engines may take to start and to end.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// Changes of the engine's three probes.
    #[serde(default)]
    pub probes: Probes,
    /// How engines are replaced when the pool changes.
    #[serde(default)]
    pub rollout: Rollout,
    /// How many engines may go at once when nodes are drained.
    #[serde(default)]
    pub disruption: Disruption,
    /// How an engine is chosen for a request.
    #[serde(default)]
    pub routing: Routing,
    /// The pods that choose an engine for each request.
    #[serde(default)]
    pub picker: Picker,
    /// How requests from outside reach the pool.
    #[serde(default)]
    pub gateway: Gateway,
    /// Who may reach the pool's pods.
    #[serde(default)]
    pub network_policy: NetworkPolicySpec,
    /// Objects of the Prometheus operator.
    #[serde(default)]
    pub monitoring: Monitoring,
    /// Changes of the engines' pod template (metadata and spec, as Kubernetes writes them), merged into what the
    /// operator builds. Selector labels, and the engine container's name, ports, command, lifecycle and grace are refused.
    #[serde(default)]
    pub pod_template: Loose<PodTemplateSpec>,
}

impl InferencePoolSpec {
    /// Accelerators of all engines together, when all of them exist.
    pub fn accelerators(&self) -> i64 {
        i64::from(self.parallelism.accelerators()) * i64::from(self.replicas)
    }
}

/// The rule that the whole object obeys, beside those of its fields.
pub(super) fn name_rule() -> Rule {
    Rule::new("self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')")
        .message("metadata.name names Services too: at most 40 lower-case letters, digits and dashes, a letter first, no dots; instead of qwen2.5-7b use qwen2-5-7b")
}

/// Rules of everything in the specification that has a default. They cannot stand in its own schema: the API server
/// checks a default against it before the defaults inside of it are filled in.
fn rules() -> Vec<Rule> {
    let disjoint = |one: &str, other: &str| {
        format!(
            "(self.{one} + self.parallelism.data <= self.{other} || self.{other} + self.parallelism.data <= self.{one})"
        )
    };
    let (port, events, replay) = (
        "engine.port",
        "engine.kvEvents.port",
        "engine.kvEvents.replayPort",
    );
    let mut rules = vec![
        Rule::new(
            "self.parallelism.tensor * self.parallelism.pipeline * self.parallelism.data <= self.accelerator.gpusPerNode",
        )
        .message("an engine needs tensor × pipeline × data accelerators of one node, and that is more than accelerator.gpusPerNode; lower one of the three")
        .field_path(".parallelism"),
        Rule::new(format!(
            "{} && {} && {}",
            disjoint(port, events),
            disjoint(port, replay),
            disjoint(events, replay)
        ))
        .message("engine.port, kvEvents.port and kvEvents.replayPort each take as many ports as parallelism.data, and these overlap; move them apart")
        .field_path(".engine.kvEvents"),
        Rule::new(
            "[self.engine.port, self.engine.kvEvents.port, self.engine.kvEvents.replayPort].all(p, p + self.parallelism.data <= 65536)",
        )
        .message("with parallelism.data ports each, engine.port, kvEvents.port or kvEvents.replayPort goes beyond 65535; lower it")
        .field_path(".engine"),
        Rule::new("self.gateway.plug != 'InferencePool' || self.parallelism.data <= 8")
            .message("a GIE InferencePool has at most 8 ports and data-parallel ranks take one each; lower parallelism.data or choose plug: EnvoyGateway or a standalone Envoy")
            .field_path(".gateway.plug"),
    ];
    rules.extend(placement::accelerator_rules());
    rules.extend(placement::resource_rules());
    rules.extend(cache::rules());
    rules.extend(lifecycle::rollout_rules());
    rules.extend(gateway::gateway_rules());
    rules
}

const fn one() -> i32 {
    1
}
