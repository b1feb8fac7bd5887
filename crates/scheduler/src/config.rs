//! Settings of the scheduler.

use std::{fmt, str::FromStr, time::Duration};

/// Settings of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// Which policy.
    pub policy: PolicyKind,
    /// Hotspot detector's action.
    pub hotspot: HotspotAction,
    /// Prefill rate assumed before anything was measured, tokens per (model) second.
    pub default_rate: f64,
    /// Whether blocks of open reservations count as held (off only for experiments).
    pub overlay: bool,
    /// Decisions kept.
    pub decisions: usize,
    /// All time constants (window, ejection, rates) are divided by this: model time ÷ real time.
    pub speed: f64,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            policy: PolicyKind::Lmetric,
            hotspot: HotspotAction::Filter,
            default_rate: 8_000.0,
            overlay: true,
            decisions: 1_000,
            speed: 1.0,
        }
    }
}

impl SchedulerConfig {
    pub(crate) fn pace(&self) -> Pace {
        Pace(if self.speed.is_finite() && self.speed > 0.0 {
            self.speed
        } else {
            1.0
        })
    }
}

/// Model seconds per real second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace(f64);

impl Pace {
    /// A time constant of the model, in real time.
    pub(crate) fn real(self, model: Duration) -> Duration {
        model.div_f64(self.0)
    }

    /// A rate per model second, per real second.
    pub(crate) fn rate(self, per_model_second: f64) -> f64 {
        per_model_second * self.0
    }
}

/// What the detector does once a class is a hotspot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotspotAction {
    /// Nothing is detected.
    Off,
    /// M is taken out of the running for the class.
    Filter,
    /// The class is placed by load only.
    LoadOnly,
}

/// Policies by name. A policy that has parameters carries them in its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// `(Q + new) × (BS + w)`.
    Lmetric,
    /// `4 · waiting + running`.
    Vllm,
    /// In turn.
    RoundRobin,
    /// Uniformly at random.
    Random,
    /// Fewest requests.
    LeastRequest,
}

impl PolicyKind {
    /// Every policy.
    pub const ALL: [Self; 5] = [
        Self::Lmetric,
        Self::Vllm,
        Self::RoundRobin,
        Self::Random,
        Self::LeastRequest,
    ];

    /// As it is written in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lmetric => "lmetric",
            Self::Vllm => "vllm",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::LeastRequest => "least-request",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A policy name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no policy is called {name:?}: use {}", names())]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
}

fn names() -> String {
    PolicyKind::ALL.map(PolicyKind::name).join(", ")
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}
