//! Numbers about the operator's own work.

use std::time::Duration;

use lmetric_telemetry::Histogram;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Kinds are a fixed set, so is what can go wrong: labels are bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    verb: Verb,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Verb {
    /// Server-side apply of an object.
    Apply,
    /// An orphan was deleted.
    Delete,
    /// A pool's status.
    Status,
    /// An Event.
    Event,
}

/// The operator's metrics. Clones are the same.
#[derive(Clone, Debug)]
pub struct Metrics {
    reconciles: Counter,
    duration: Histogram,
    errors: Family<KindLabel, Counter>,
    writes: Family<WriteLabels, Counter>,
    watch_errors: Family<KindLabel, Counter>,
    leading: Gauge,
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Counter::default(),
            duration: Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0]),
            errors: Family::default(),
            writes: Family::default(),
            watch_errors: Family::default(),
            leading: Gauge::default(),
        };
        registry.register(
            "operator_reconciles",
            "Times that a pool was worked on",
            metrics.reconciles.clone(),
        );
        registry.register(
            "operator_reconcile_duration_seconds",
            "Time that one took",
            metrics.duration.clone(),
        );
        registry.register(
            "operator_errors",
            "Failures by what failed",
            metrics.errors.clone(),
        );
        registry.register(
            "operator_writes",
            "Requests that write, by kind and verb",
            metrics.writes.clone(),
        );
        registry.register(
            "operator_watch_errors",
            "Broken watches by kind",
            metrics.watch_errors.clone(),
        );
        registry.register(
            "operator_leading",
            "1 while this process leads",
            metrics.leading.clone(),
        );
        metrics
    }

    /// A pool was worked on for `time`.
    pub fn reconciled(&self, time: Duration) {
        self.reconciles.inc();
        self.duration.observe(time.as_secs_f64());
    }

    /// Something failed; `kind` is one of a fixed set.
    pub fn failed(&self, kind: &'static str) {
        self.errors.get_or_create(&KindLabel { kind }).inc();
    }

    /// A request that writes was sent.
    pub fn wrote(&self, kind: &'static str, verb: Verb) {
        self.writes.get_or_create(&WriteLabels { kind, verb }).inc();
    }

    /// A watch broke and is being restarted.
    pub fn watch_failed(&self, kind: &'static str) {
        self.watch_errors.get_or_create(&KindLabel { kind }).inc();
    }

    /// Whether this process leads.
    pub fn set_leading(&self, leads: bool) {
        self.leading.set(i64::from(leads));
    }

    /// Requests of this verb so far, over all kinds that were written.
    pub fn writes_of(&self, kind: &'static str, verb: Verb) -> u64 {
        self.writes.get_or_create(&WriteLabels { kind, verb }).get()
    }
}
