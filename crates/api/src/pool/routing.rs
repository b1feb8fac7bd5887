//! How requests find an engine, and the pickers that decide it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    engine::SecretName,
    placement::{Placement, Resources},
};

/// How an engine is chosen for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Routing {
    /// Rule of choice: lmetric, vllm, round-robin, random or least-request. Default lmetric, new prefill tokens times
    /// batch size.
    pub policy: RoutingPolicy,
    /// What happens to a request that no picker decides: FailClose answers 503, FailOpen sends it to any engine.
    /// Default FailClose.
    pub failure_mode: FailureMode,
    /// Whether a prefix that many requests share at once is spread over more engines. Default true.
    pub hotspot_filter: bool,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            policy: RoutingPolicy::Lmetric,
            failure_mode: FailureMode::FailClose,
            hotspot_filter: true,
        }
    }
}

/// Rule by which an engine is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingPolicy {
    /// New prefill tokens times batch size, the lowest wins.
    #[default]
    Lmetric,
    /// The weighted queue of vLLM's own router.
    Vllm,
    /// In turn.
    RoundRobin,
    /// By chance.
    Random,
    /// Fewest requests.
    LeastRequest,
}

impl RoutingPolicy {
    /// As the pool and the picker's configuration write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lmetric => "lmetric",
            Self::Vllm => "vllm",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::LeastRequest => "least-request",
        }
    }
}

/// What happens to a request that no picker decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureMode {
    /// It is refused with 503.
    #[default]
    FailClose,
    /// It goes to any engine.
    FailOpen,
}

impl FailureMode {
    /// As the pool and GIE's InferencePool write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailClose => "FailClose",
            Self::FailOpen => "FailOpen",
        }
    }
}

/// The pods that choose an engine for each request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Picker {
    /// Pickers. More than one pick independently of each other until they share their ledgers. Default 1.
    #[schemars(range(min = 1, max = 16))]
    pub replicas: i32,
    /// Image of the picker. Its user must not be root. Default: the operator's own.
    #[schemars(length(max = 512))]
    pub image: String,
    /// Secrets of this namespace with which the image is pulled.
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pull_secrets: Vec<SecretName>,
    /// TLS between gateway and picker: Auto (plaintext for the standalone Envoy and Envoy Gateway, TLS for others),
    /// SelfSigned or Plaintext. Default Auto.
    pub tls: PickerTls,
    /// What the picker's container asks for and may use.
    pub resources: Resources,
    /// Where pickers may run.
    pub placement: Placement,
}

impl Default for Picker {
    fn default() -> Self {
        Self {
            replicas: 1,
            image: String::new(),
            pull_secrets: Vec::new(),
            tls: PickerTls::Auto,
            resources: Resources::default(),
            placement: Placement::default(),
        }
    }
}

/// TLS between gateway and picker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PickerTls {
    /// What the gateway wants.
    #[default]
    Auto,
    /// With a certificate that the picker makes at its start.
    SelfSigned,
    /// None. It is not called Off, which YAML 1.1 reads as false.
    Plaintext,
}
