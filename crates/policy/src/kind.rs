//! Every policy by name, each with its parameters.

use std::{fmt, ops::RangeInclusive};

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::{
    Aibrix, Bailian, Dynamo, EngineChoice, LlmD, LlmDTtft, Lmetric, Marginal, PolyServe, Preble,
    PrefixAffinity,
};

/// How an endpoint is chosen. The source and the formula of each stand in the scheduler's file of that name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyKind {
    /// `(Q + new) × (BS + w)`.
    Lmetric(Lmetric),
    /// `Q + new × (BS + w)^α` in attention-aware units.
    LmetricMarginal(Marginal),
    /// `4 · waiting + running`.
    Vllm,
    /// `λ (1 − hit) + (1 − λ) BS`.
    Bailian(Bailian),
    /// Blocks to prefill plus blocks in decode.
    Dynamo(Dynamo),
    /// Weighted scorers.
    LlmD(LlmD),
    /// Smallest simulated TTFT.
    LlmDTtft(LlmDTtft),
    /// Range filter, then the longest match that is not overloaded.
    Aibrix(Aibrix),
    /// Exploit a long match, else explore the least loaded.
    Preble(Preble),
    /// Fullest endpoint within the limits.
    PolyServe(PolyServe),
    /// In turn.
    RoundRobin,
    /// Uniformly at random.
    Random,
    /// Fewest requests.
    LeastRequest,
    /// The better of two drawn at random.
    PowerOfTwo,
    /// A session stays where it was.
    SessionAffinity,
    /// First tokens decide, within bounded loads.
    PrefixAffinity(PrefixAffinity),
}

impl Default for PolicyKind {
    fn default() -> Self {
        Self::LMETRIC
    }
}

impl PolicyKind {
    /// The default: LMetric as the paper has it.
    pub const LMETRIC: Self = Self::Lmetric(Lmetric {
        work: crate::Work::PToken,
        crowd: crate::Crowd::Bs,
        queue: true,
    });

    /// Every policy with its source's parameters.
    pub fn all() -> [Self; 16] {
        [
            Self::Lmetric(Lmetric::default()),
            Self::LmetricMarginal(Marginal::default()),
            Self::Vllm,
            Self::Bailian(Bailian::default()),
            Self::Dynamo(Dynamo::default()),
            Self::LlmD(LlmD::default()),
            Self::LlmDTtft(LlmDTtft::default()),
            Self::Aibrix(Aibrix::default()),
            Self::Preble(Preble::default()),
            Self::PolyServe(PolyServe::default()),
            Self::RoundRobin,
            Self::Random,
            Self::LeastRequest,
            Self::PowerOfTwo,
            Self::SessionAffinity,
            Self::PrefixAffinity(PrefixAffinity::default()),
        ]
    }

    /// As it is written in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lmetric(_) => "lmetric",
            Self::LmetricMarginal(_) => "lmetric-marginal",
            Self::Vllm => "vllm",
            Self::Bailian(_) => "bailian",
            Self::Dynamo(_) => "dynamo",
            Self::LlmD(_) => "llm-d",
            Self::LlmDTtft(_) => "llm-d-ttft",
            Self::Aibrix(_) => "aibrix",
            Self::Preble(_) => "preble",
            Self::PolyServe(_) => "polyserve",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::LeastRequest => "least-request",
            Self::PowerOfTwo => "power-of-two",
            Self::SessionAffinity => "session-affinity",
            Self::PrefixAffinity(_) => "prefix-affinity",
        }
    }

    /// Names of all, for messages.
    pub fn names() -> String {
        Self::all().map(Self::name).join(", ")
    }

    /// The engine model that it simulates or counts attention by, if it does.
    pub const fn engine(self) -> Option<EngineChoice> {
        let (Self::LmetricMarginal(Marginal { model, gpu, .. })
        | Self::LlmDTtft(LlmDTtft { model, gpu, .. })
        | Self::PolyServe(PolyServe { model, gpu, .. })) = self
        else {
            return None;
        };
        Some(EngineChoice { model, gpu })
    }

    /// Whether it cannot place by anything but an engine model's step times.
    pub const fn simulates(self) -> bool {
        matches!(self, Self::LlmDTtft(_) | Self::PolyServe(_))
    }

    /// The parameters that differ from the source's.
    pub fn changes(self) -> Map<String, Value> {
        let default = Self::all().into_iter().find(|other| other.name() == self.name());
        let before = default.map(Self::parameters).unwrap_or_default();
        let mut changes = self.parameters();
        changes.retain(|name, value| before.get(name) != Some(value));
        changes
    }

    /// All parameters, in their order.
    pub fn parameters(self) -> Map<String, Value> {
        match self {
            Self::Lmetric(own) => fields(own),
            Self::LmetricMarginal(own) => fields(own),
            Self::Bailian(own) => fields(own),
            Self::Dynamo(own) => fields(own),
            Self::LlmD(own) => fields(own),
            Self::LlmDTtft(own) => fields(own),
            Self::Aibrix(own) => fields(own),
            Self::Preble(own) => fields(own),
            Self::PolyServe(own) => fields(own),
            Self::PrefixAffinity(own) => fields(own),
            Self::Vllm
            | Self::RoundRobin
            | Self::Random
            | Self::LeastRequest
            | Self::PowerOfTwo
            | Self::SessionAffinity => Map::new(),
        }
    }

    /// What is out of range, and what may be written instead.
    pub(crate) fn check(self) -> Result<(), String> {
        const WEIGHT: RangeInclusive<f64> = 0.0..=1_000.0;
        const MILLIS: RangeInclusive<f64> = 0.0..=60_000.0;
        let bounds: &[(&str, f64, RangeInclusive<f64>)] = match self {
            Self::LmetricMarginal(Marginal { alpha, kappa, .. }) => &[
                ("alpha", alpha.unwrap_or(1.0), 0.0..=2.0),
                ("kappa", kappa.unwrap_or(0.0), 0.0..=1.0),
            ],
            Self::Bailian(Bailian { lambda }) => &[("lambda", lambda, 0.0..=1.0)],
            Self::Dynamo(own) => &[
                ("prefillLoadScale", own.prefill_load_scale, WEIGHT),
                ("overlapCredit", own.overlap_credit, WEIGHT),
                ("creditDecay", own.credit_decay, WEIGHT),
                ("activeRequestWeight", own.active_request_weight, WEIGHT),
                ("temperature", own.temperature, WEIGHT),
            ],
            Self::LlmD(LlmD { queue, kv, prefix }) => &[
                ("queue", queue, WEIGHT),
                ("kv", kv, WEIGHT),
                ("prefix", prefix, WEIGHT),
            ],
            Self::LlmDTtft(LlmDTtft { error, .. }) => &[("error", error, 0.0..=5.0)],
            Self::Aibrix(Aibrix { deviations, .. }) => &[("deviations", deviations, 0.0..=100.0)],
            Self::Preble(own) => &[
                ("threshold", own.threshold, 0.0..=1.0),
                ("window", own.window, 1.0..=86_400.0),
                ("prefillMs", own.prefill_ms, MILLIS),
                ("prefillBaseMs", own.prefill_base_ms, MILLIS),
                ("decodeMs", own.decode_ms, MILLIS),
                ("expectedOutput", own.expected_output, 0.0..=1e6),
            ],
            Self::PolyServe(PolyServe { ttft, tpot, .. }) => {
                &[("ttft", ttft, 0.001..=3_600.0), ("tpot", tpot, 0.000_1..=60.0)]
            }
            Self::PrefixAffinity(PrefixAffinity { tokens, load_factor }) => &[
                ("tokens", f64::from(tokens), 1.0..=1e6),
                ("loadFactor", load_factor, 1.0..=100.0),
            ],
            _ => &[],
        };
        match bounds.iter().find(|(_, value, range)| !range.contains(value)) {
            None => Ok(()),
            Some((name, value, range)) => Err(format!(
                "{name} {value} is out of range; write a number from {} to {}",
                range.start(),
                range.end()
            )),
        }
    }
}

fn fields(parameters: impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(parameters) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// `bailian`, `bailian(lambda=0.55)`: only what differs from the source's parameters is named.
impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let changes = self.changes();
        for (at, (name, value)) in changes.iter().enumerate() {
            let open = if at == 0 { "(" } else { "," };
            match value {
                Value::String(word) => write!(f, "{open}{name}={word}")?,
                other => write!(f, "{open}{name}={other}")?,
            }
        }
        f.write_str(if changes.is_empty() { "" } else { ")" })
    }
}

/// A map of `name` and all parameters.
impl Serialize for PolicyKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let parameters = self.parameters();
        let mut map = to.serialize_map(Some(1 + parameters.len()))?;
        map.serialize_entry("name", self.name())?;
        for (name, value) in &parameters {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
