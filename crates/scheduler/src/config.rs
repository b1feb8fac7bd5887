//! Settings of the scheduler.

use std::time::Duration;

use lmetric_policy::{EngineModel, PolicyKind};

/// Settings of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// Which policy.
    pub policy: PolicyKind,
    /// Step times for policies that simulate an engine or count its attention.
    pub engine: Option<EngineModel>,
    /// A second policy that scores every pick beside it and reserves nothing.
    pub shadow: Option<ShadowConfig>,
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

/// The shadow policy.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowConfig {
    /// Which policy.
    pub policy: PolicyKind,
    /// Step times, where it asks for some.
    pub engine: Option<EngineModel>,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            policy: PolicyKind::LMETRIC,
            engine: None,
            shadow: None,
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
