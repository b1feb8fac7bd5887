//! What validation hands to the builders: the pool, and every fact that its fields leave open, resolved.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Affinity, PodTemplateSpec};
use lmetric_api::{
    foreign::gateway::ParentReference,
    pool::{InferencePool, IntOrString, Source},
};

/// A pool that can be built. Builders look nothing up and check nothing again.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// The object as the API server returned it, defaults included.
    pub pool: Arc<InferencePool>,
    /// `metadata.name`: a DNS label of at most 40 characters.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.uid`, for owner references.
    pub uid: String,
    /// Where `model.uri` points.
    pub source: Source,
    /// Adapters: name and where each comes from, in the order of the pool.
    pub adapters: Vec<(String, Source)>,
    /// `placement.affinity`, read.
    pub engine_affinity: Option<Affinity>,
    /// `picker.placement.affinity`, read.
    pub picker_affinity: Option<Affinity>,
    /// `podTemplate`, read strictly; forbidden fields are refused before. `None` when nothing is written.
    pub overlay: Option<PodTemplateSpec>,
    /// How engines are replaced. For `Auto` it is the first step, surge 1 and unavailable 0; the reconciler may
    /// ease it after the build.
    pub strategy: Strategy,
    /// Objects that the way in needs.
    pub way_in: WayIn,
    /// The pool's Gateways by their plug.
    pub parents: Parents,
    /// What is known of the cluster and of the operator's own place in it.
    pub cluster: Cluster,
}

/// How engines are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All old ones go first.
    Recreate,
    /// Step by step.
    Rolling {
        /// Engines above the count.
        surge: IntOrString,
        /// Engines below the count.
        unavailable: IntOrString,
    },
}

/// Which optional objects are to be built: asked for by the pool, and their definitions are installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayIn {
    /// GIE's InferencePool.
    pub gie_pool: bool,
    /// The HTTPRoute of the pool's Gateways, with GIE's InferencePool as its backend.
    pub route: bool,
    /// Istio's DestinationRule: the picker serves TLS.
    pub destination_rule: bool,
    /// The HTTPRoute of the pool's Gateways with Envoy Gateway's policies.
    pub envoy_gateway: bool,
    /// Where the picker serves ext-proc.
    pub listeners: Listeners,
    /// A PodMonitor.
    pub pod_monitor: bool,
    /// A PrometheusRule.
    pub alerts: bool,
}

/// References to the pool's Gateways by the plug that these need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parents {
    /// GIE's InferencePool.
    pub gie: Vec<ParentReference>,
    /// Envoy Gateway's policies.
    pub envoy_gateway: Vec<ParentReference>,
}

/// Where the picker serves ext-proc: each way has a port of its own, so that nothing moves when the other one comes or
/// goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listeners {
    /// In plaintext: for the standalone Envoy and Envoy Gateway.
    #[default]
    Plaintext,
    /// Over TLS, with a certificate of its own: for GIE's gateways.
    Tls,
    /// Both.
    Both,
}

impl Listeners {
    /// Whether there is one in plaintext.
    pub const fn plaintext(self) -> bool {
        matches!(self, Self::Plaintext | Self::Both)
    }

    /// Whether there is one over TLS.
    pub const fn tls(self) -> bool {
        matches!(self, Self::Tls | Self::Both)
    }

    /// As an annotation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Tls => "tls",
            Self::Both => "plaintext+tls",
        }
    }
}

/// Facts about the cluster that no pool can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Namespace that the operator runs in: network policies let it in to pickers.
    pub operator_namespace: String,
    /// ClusterRole of the chart that pickers are bound to.
    pub picker_role: String,
    /// DNS suffix of the cluster.
    pub domain: String,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            operator_namespace: "lmetric-system".to_owned(),
            picker_role: "lmetric-picker".to_owned(),
            domain: "cluster.local".to_owned(),
        }
    }
}

/// Images that the operator was told to use where a pool names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// The picker.
    pub picker: String,
    /// The standalone Envoy.
    pub envoy: String,
    /// imagePullPolicy of these and of the drain tool.
    pub pull_policy: String,
}

/// What made the engines' pods, kept over upgrades of the operator: an upgrade never rolls engines of an unchanged
/// pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Which builder makes the engines' template; 1 to [`crate::build::TEMPLATE_REVISION`].
    pub template_revision: i32,
    /// Image whose `/lmetric-drain` is copied into engine pods.
    pub tool_image: String,
}
