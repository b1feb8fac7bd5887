//! What becomes of requests in a recording; registered only where one is made.

use lmetric_telemetry::prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::record::Skipped;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// A recording's counters.
#[derive(Clone, Debug)]
pub struct RecordMetrics {
    recorded: Counter,
    skipped: [Counter; Skipped::ALL.len()],
    queue_full: Counter,
    write_failed: Counter,
}

impl RecordMetrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let recorded = Counter::default();
        registry.register(
            "record_requests",
            "Requests written to the recording",
            recorded.clone(),
        );
        let label = |reason| ReasonLabel { reason };
        let skipped = Family::<ReasonLabel, Counter>::default();
        registry.register(
            "record_skipped",
            "Requests that cannot be recorded, by reason",
            skipped.clone(),
        );
        let dropped = Family::<ReasonLabel, Counter>::default();
        registry.register(
            "record_dropped",
            "Requests lost for the recording: its queue was full, or it could not be written",
            dropped.clone(),
        );
        Self {
            recorded,
            skipped: Skipped::ALL.map(|why| skipped.get_or_create_owned(&label(why.name()))),
            queue_full: dropped.get_or_create_owned(&label("queue_full")),
            write_failed: dropped.get_or_create_owned(&label("write_failed")),
        }
    }

    /// Requests were written.
    pub fn recorded(&self, count: u64) {
        self.recorded.inc_by(count);
    }

    /// A request is no line.
    pub fn skipped(&self, why: Skipped) {
        self.skipped[why as usize].inc();
    }

    /// The writer's queue was full.
    pub fn queue_full(&self) {
        self.queue_full.inc();
    }

    /// Requests could not be written.
    pub fn write_failed(&self, count: u64) {
        self.write_failed.inc_by(count);
    }
}
