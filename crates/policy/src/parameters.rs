//! The parameters of each policy that has some, with the defaults of its source.

use serde::{Deserialize, Serialize};

/// Which work LMetric multiplies by the crowd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Prefill tokens to compute: queued ones and the request's own uncached ones.
    #[default]
    PToken,
    /// `1 − hit ratio`, blind to length and queue (the paper's ablation).
    MissRatio,
}

/// Which crowd LMetric multiplies the work by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Crowd {
    /// Requests assigned and not finished.
    #[default]
    Bs,
    /// Prompt tokens of these requests (the paper's `#Tokens` ablation).
    Tokens,
    /// Only requests whose prefill is over.
    Decode,
}

/// `lmetric`: nothing to tune; the parameters take parts away, for ablations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Lmetric {
    /// First factor.
    pub work: Work,
    /// Second factor.
    pub crowd: Crowd,
    /// Whether queued tokens count in the first factor.
    pub queue: bool,
}

impl Default for Lmetric {
    fn default() -> Self {
        Self {
            work: Work::PToken,
            crowd: Crowd::Bs,
            queue: true,
        }
    }
}

/// Whose step times a policy that simulates, or counts attention, takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// The fleet's own, where the caller knows it (a simulation does).
    #[default]
    Fleet,
    /// Qwen2.5-7B-Instruct.
    #[serde(rename = "qwen2-7b")]
    Qwen2_7b,
    /// Qwen3-30B-A3B.
    #[serde(rename = "qwen3-30b-a3b")]
    Qwen3_30bA3b,
}

impl EngineName {
    /// The model profile; none for the fleet's own.
    pub const fn profile(self) -> Option<&'static str> {
        match self {
            Self::Fleet => None,
            Self::Qwen2_7b => Some("qwen2-7b"),
            Self::Qwen3_30bA3b => Some("qwen3-30b-a3b"),
        }
    }
}

/// On which GPU a named model's step times are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuName {
    /// NVIDIA H20, 96 GB.
    #[default]
    #[serde(rename = "H20", alias = "h20")]
    H20,
    /// NVIDIA H20-3e, 141 GB.
    #[serde(rename = "H20-3e", alias = "h20-3e")]
    H20_3e,
    /// NVIDIA H100 SXM, 80 GB.
    #[serde(rename = "H100", alias = "h100")]
    H100,
}

impl GpuName {
    /// The GPU profile.
    pub const fn profile(self) -> &'static str {
        match self {
            Self::H20 => "H20",
            Self::H20_3e => "H20-3e",
            Self::H100 => "H100",
        }
    }
}

/// The engine model that a policy asks its caller for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineChoice {
    /// Model.
    pub model: EngineName,
    /// GPU; without meaning for the fleet's own.
    pub gpu: GpuName,
}

/// `lmetric-marginal`: charge the queue once, multiply only the new work by the crowd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Marginal {
    /// Exponent of the crowd; unset: ½ + ½ · share of candidates that have more than one chunk queued.
    pub alpha: Option<f64>,
    /// Attention per token and context token, in linear work of a token; unset: that of `model`, 0 when it is unknown.
    pub kappa: Option<f64>,
    /// Whether new work costs more the less of the KV cache it would leave.
    pub capacity: bool,
    /// Model that gives `kappa`.
    pub model: EngineName,
    /// Its GPU.
    pub gpu: GpuName,
}

/// `bailian`: linear combination (the paper's reading of Alibaba's router).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Bailian {
    /// Weight of the missed share; the paper's best are 0.7 (chat) and 0.55 (API).
    pub lambda: f64,
}

impl Default for Bailian {
    fn default() -> Self {
        Self { lambda: 0.7 }
    }
}

/// `dynamo`: NVIDIA Dynamo 1.6's KV router.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Dynamo {
    /// `prefill_load_scale`: weight of the prefill blocks to compute.
    pub prefill_load_scale: f64,
    /// `overlap_score_credit`: how much of a cached block is credited.
    pub overlap_credit: f64,
    /// `overlap_score_credit_decay`: takes credit away as the holder's backlog exceeds the smallest one.
    pub credit_decay: f64,
    /// `decode_active_request_weight`: blocks that each active request counts for.
    pub active_request_weight: f64,
    /// Above 0, drawn by a softmax of the cost normalised to 0–1.
    pub temperature: f64,
}

impl Default for Dynamo {
    fn default() -> Self {
        Self {
            prefill_load_scale: 1.0,
            overlap_credit: 1.0,
            credit_decay: 0.0,
            active_request_weight: 0.0,
            temperature: 0.0,
        }
    }
}

/// `llm-d`: the weighted scorers of llm-d's default profile (August 2026).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LlmD {
    /// `queue-scorer`.
    pub queue: f64,
    /// `kv-cache-utilization-scorer`.
    pub kv: f64,
    /// `prefix-cache-scorer`.
    pub prefix: f64,
}

impl Default for LlmD {
    fn default() -> Self {
        Self {
            queue: 2.0,
            kv: 2.0,
            prefix: 3.0,
        }
    }
}

/// `llm-d-ttft`: smallest simulated TTFT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LlmDTtft {
    /// Model that is simulated; naming another than the fleet's is the paper's untuned simulator.
    pub model: EngineName,
    /// Its GPU.
    pub gpu: GpuName,
    /// Standard deviation of the logarithm of a factor drawn for each prediction: 0 is an oracle, 0.122 puts one
    /// prediction in ten more than 20 % off (the paper's tuned simulator, figure 16).
    pub error: f64,
}

/// `aibrix`: AIBrix's prefix-cache policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Aibrix {
    /// Spread of running requests (max − min) above which load alone decides.
    pub range: u32,
    /// A matching endpoint is taken while its requests are at most mean + this × standard deviation.
    pub deviations: f64,
}

impl Default for Aibrix {
    fn default() -> Self {
        Self {
            range: 8,
            deviations: 1.0,
        }
    }
}

/// `preble`: Preble's E2 (exploit, else explore).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Preble {
    /// Hit ratio above which the longest match is followed.
    pub threshold: f64,
    /// Seconds of history that an endpoint's load is summed over.
    pub window: f64,
    /// Milliseconds of prefill per uncached token (its A6000 fit).
    pub prefill_ms: f64,
    /// Milliseconds that a prefill costs besides (its A6000 fit).
    pub prefill_base_ms: f64,
    /// Milliseconds per generated token.
    pub decode_ms: f64,
    /// Tokens that a request is expected to generate; a router does not know them.
    pub expected_output: f64,
}

impl Default for Preble {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            window: 180.0,
            prefill_ms: 0.108_425_71,
            prefill_base_ms: 4.21,
            decode_ms: 150.0,
            expected_output: 45.0,
        }
    }
}

/// `polyserve`: the fullest endpoint that still keeps both limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolyServe {
    /// Limit of the simulated TTFT, seconds. The LMetric paper names none; 5 s is ours.
    pub ttft: f64,
    /// Limit of the simulated time per output token, seconds; the LMetric paper's best is 20 ms.
    pub tpot: f64,
    /// Model that is simulated.
    pub model: EngineName,
    /// Its GPU.
    pub gpu: GpuName,
}

impl Default for PolyServe {
    fn default() -> Self {
        Self {
            ttft: 5.0,
            tpot: 0.020,
            model: EngineName::Fleet,
            gpu: GpuName::H20,
        }
    }
}

/// `prefix-affinity`: consistent hashing of the first tokens with bounded loads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrefixAffinity {
    /// Leading tokens that are hashed.
    pub tokens: u32,
    /// An endpoint is passed over while it would hold more than this times the mean.
    pub load_factor: f64,
}

impl Default for PrefixAffinity {
    fn default() -> Self {
        Self {
            tokens: 256,
            load_factor: 1.25,
        }
    }
}
