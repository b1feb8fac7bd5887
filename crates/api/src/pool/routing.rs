//! How requests find an engine, and the pickers that decide it.

use std::collections::BTreeMap;

use lmetric_policy::{PolicyError, PolicyKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    engine::SecretName,
    placement::{Placement, Resources},
    schema,
};

/// How an engine is chosen for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Routing {
    /// Rule of choice. Default lmetric, new prefill tokens times batch size, which has nothing to tune.
    pub policy: RoutingPolicy,
    /// Parameters of the policy by name, such as lambda: "0.55" for bailian. Those left out have the policy's own default.
    #[schemars(schema_with = "schema::labels")]
    pub parameters: BTreeMap<String, String>,
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
            parameters: BTreeMap::new(),
            failure_mode: FailureMode::FailClose,
            hotspot_filter: true,
        }
    }
}

impl Routing {
    /// The policy with its parameters, as pickers know it.
    pub fn kind(&self) -> Result<PolicyKind, PolicyError> {
        let parameters: Vec<String> = self
            .parameters
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!("{}({})", self.policy.as_str(), parameters.join(",")).parse()
    }
}

/// Rule by which an engine is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingPolicy {
    /// New prefill tokens times batch size, the lowest wins.
    #[default]
    Lmetric,
    /// The queue charged once, only new work multiplied by a power of the batch size.
    LmetricMarginal,
    /// The weighted queue of vLLM's own router.
    Vllm,
    /// A linear combination of missed prefix and batch size.
    Bailian,
    /// Blocks to prefill plus blocks in decode, as NVIDIA Dynamo's router.
    Dynamo,
    /// The weighted scorers of llm-d.
    LlmD,
    /// The smallest simulated time to first token.
    LlmDTtft,
    /// AIBrix' range filter, then the longest match.
    Aibrix,
    /// A long match, else the least loaded.
    Preble,
    /// The fullest engine within two limits.
    #[serde(rename = "polyserve")]
    PolyServe,
    /// In turn.
    RoundRobin,
    /// By chance.
    Random,
    /// Fewest requests.
    LeastRequest,
    /// The better of two drawn by chance.
    PowerOfTwo,
    /// A session stays where it was.
    SessionAffinity,
    /// The prompt's beginning decides, within bounded loads.
    PrefixAffinity,
}

impl RoutingPolicy {
    /// As the pool and the picker's configuration write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lmetric => "lmetric",
            Self::LmetricMarginal => "lmetric-marginal",
            Self::Vllm => "vllm",
            Self::Bailian => "bailian",
            Self::Dynamo => "dynamo",
            Self::LlmD => "llm-d",
            Self::LlmDTtft => "llm-d-ttft",
            Self::Aibrix => "aibrix",
            Self::Preble => "preble",
            Self::PolyServe => "polyserve",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::LeastRequest => "least-request",
            Self::PowerOfTwo => "power-of-two",
            Self::SessionAffinity => "session-affinity",
            Self::PrefixAffinity => "prefix-affinity",
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_can_name_every_policy_that_pickers_know() {
        for kind in PolicyKind::all() {
            let routing: Routing = serde_json::from_value(json!({"policy": kind.name()})).unwrap();
            assert_eq!(routing.kind(), Ok(kind));
        }
    }

    #[test]
    fn parameters_are_read_as_the_policys_own() {
        let routing: Routing =
            serde_json::from_value(json!({"policy": "bailian", "parameters": {"lambda": "0.55"}})).unwrap();
        assert_eq!(routing.kind().unwrap().to_string(), "bailian(lambda=0.55)");
    }
}
