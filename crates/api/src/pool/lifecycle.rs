//! Start, end and replacement of engines.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    duration::{self, Duration},
    schema,
};

/// How long engines may take to start and to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Lifecycle {
    /// Time for download, loading, compilation and warm-up, from 10s to 24h; then the container is restarted. Default
    /// 30m.
    #[schemars(extend("x-kubernetes-validations" = [between("10s", "24h")]))]
    pub startup_timeout: Duration,
    /// Time for requests in flight when an engine ends, from 0s to 6h; then they are cut. Default 5m.
    #[schemars(extend("x-kubernetes-validations" = [between("0s", "6h")]))]
    pub drain_timeout: Duration,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            startup_timeout: Duration::from_mins(30),
            drain_timeout: Duration::from_mins(5),
        }
    }
}

/// Changes of the engine's three probes. They ask GET /health.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Probes {
    /// Whether the engine has started. Every 5 s, until lifecycle.startupTimeout is over.
    pub startup: ProbeOverride,
    /// Whether the engine takes requests. Every 5 s, 5 s timeout, 6 failures.
    pub readiness: ProbeOverride,
    /// Whether the engine is alive. Every 10 s, 15 s timeout, 10 failures; then the container is restarted.
    pub liveness: ProbeOverride,
}

/// Changes of one probe; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeOverride {
    /// Path to ask for. Default /health.
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self == '' || self.startsWith('/')").message("is no path; it has to begin with /, such as /health"),
    ]))]
    pub path: String,
    /// Seconds before the first try. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between tries. Default: see the probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_600))]
    pub period_seconds: Option<i32>,
    /// Seconds after which a try has failed. Default: see the probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3_600))]
    pub timeout_seconds: Option<i32>,
    /// Failures in a row that count. Default: see the probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub failure_threshold: Option<i32>,
}

/// How engines are replaced when the pool changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// Auto (a new engine first; when no accelerator is free for it, an old one goes first), RollingUpdate (by
    /// maxSurge and maxUnavailable) or Recreate (all old ones go first). Default Auto.
    pub strategy: RolloutStrategy,
    /// Engines above replicas during a rollout, as count or percentage. Only for RollingUpdate, where the default is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_surge: Option<IntOrString>,
    /// Engines below replicas during a rollout, as count or percentage. Only for RollingUpdate, where the default is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: Option<IntOrString>,
    /// Seconds that an engine has to be ready before the rollout goes on. Default 0.
    #[schemars(range(min = 0, max = 86_400))]
    pub min_ready_seconds: i32,
    /// Whether changes of the engines wait. Default false.
    pub paused: bool,
}

impl Rollout {
    /// Engines above `replicas` with strategy RollingUpdate.
    pub fn surge(&self) -> IntOrString {
        self.max_surge.clone().unwrap_or(IntOrString::Int(0))
    }

    /// Engines below `replicas` with strategy RollingUpdate.
    pub fn unavailable(&self) -> IntOrString {
        self.max_unavailable.clone().unwrap_or(IntOrString::Int(1))
    }

    /// Whether a rollout could not take a single step.
    pub fn is_stuck(&self) -> bool {
        schema::is_zero(&self.surge()) && schema::is_zero(&self.unavailable())
    }
}

/// How engines are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutStrategy {
    /// Surge while accelerators are free.
    #[default]
    Auto,
    /// By maxSurge and maxUnavailable.
    RollingUpdate,
    /// All old ones go first.
    Recreate,
}

/// How many engines may go at once when nodes are drained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// Engines that evictions may take away at the same time, as count or percentage. Default 1.
    #[schemars(schema_with = "schema::int_or_percent")]
    pub max_unavailable: IntOrString,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            max_unavailable: IntOrString::Int(1),
        }
    }
}

fn between(least: &str, most: &str) -> Rule {
    let pattern = duration::PATTERN;
    Rule::new(format!(
        "self != '' && self.matches('{pattern}') && duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
    ))
    .message(format!(
        "has to be a duration from {least} to {most} in hours, minutes and seconds, such as 30m, 1h30m or 20s"
    ).as_str())
}

/// Rules of `spec.rollout`, from the specification down.
pub(super) fn rollout_rules() -> [Rule; 2] {
    let zero = |field: &str| format!("string(self.rollout.{field}).matches('^0+%?$')");
    let (no_surge, no_unavailable) = (zero("maxSurge"), zero("maxUnavailable"));
    [
        Rule::new("self.rollout.strategy == 'RollingUpdate' || (!has(self.rollout.maxSurge) && !has(self.rollout.maxUnavailable))")
            .message("maxSurge and maxUnavailable are only for strategy RollingUpdate; set strategy: RollingUpdate or remove them")
            .field_path(".rollout"),
        Rule::new(format!(
            "!has(self.rollout.maxUnavailable) || !{no_unavailable} || (has(self.rollout.maxSurge) && !{no_surge})"
        ))
        .message("maxSurge and maxUnavailable cannot both be 0, or no rollout could take a step; raise one of them (maxUnavailable: 1 needs no free accelerator)")
        .field_path(".rollout"),
    ]
}
