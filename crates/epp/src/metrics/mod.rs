//! The picker's own metrics. Nothing on the pick path takes a lock for them: histograms are sharded atomics,
//! counters are atomics, and what the scheduler, the index and the sources count is read when somebody asks
//! ([`export`]).

mod export;
mod record;
mod reload;
mod shadow;
mod streams;

use std::time::Duration;

use lmetric_telemetry::{
    Histogram,
    prometheus_client::{
        encoding::EncodeLabelSet,
        metrics::{counter::Counter, family::Family},
        registry::{Registry, Unit},
    },
};

pub use export::Export;
pub use record::RecordMetrics;
pub use reload::ReloadMetrics;
pub use shadow::Shadow;
pub use streams::Streams;

use crate::{scrape::FetchError, tokens::Rung};

/// Label of a scrape's result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Label of a rung of the token ladder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RungLabel {
    rung: &'static str,
}

/// Reading engines.
#[derive(Clone, Debug)]
pub struct ScrapeMetrics {
    results: Family<ResultLabel, Counter>,
    duration: Histogram,
}

impl ScrapeMetrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let results = Family::default();
        registry.register(
            "scrapes",
            "Reads of engines' metrics pages, by result",
            results.clone(),
        );
        let duration = Histogram::seconds();
        registry.register_with_unit(
            "scrape_duration",
            "Time to read one engine's metrics page",
            Unit::Seconds,
            duration.clone(),
        );
        Self { results, duration }
    }

    /// One scrape ended.
    pub fn observe(&self, took: Duration, error: Option<&FetchError>) {
        let result = error.map_or("ok", FetchError::reason);
        self.results.get_or_create(&ResultLabel { result }).inc();
        self.duration.observe_duration(took);
    }
}

/// Placing requests.
#[derive(Clone, Debug)]
pub struct PlaceMetrics {
    /// From the parsed request to the pick.
    pub place: Histogram,
    /// The pick alone: choose and reserve.
    pub pick: Histogram,
    /// Getting token ids.
    pub tokens: Histogram,
    /// Prompt length.
    pub prompt: Histogram,
    /// Predicted hit.
    pub hit: Histogram,
    /// |predicted − real| where it could be checked.
    pub hit_error: Histogram,
    /// Requests by the rung that their tokens came from.
    rungs: [Counter; Rung::ALL.len()],
    /// Requests that found the tokenizer's queue full.
    pub queue_full: Counter,
    /// Requests that ran out of the ladder's budget.
    pub out_of_budget: Counter,
}

impl PlaceMetrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let mut seconds = |name: &str, help: &str| {
            let histogram = Histogram::seconds();
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
            histogram
        };
        let place = seconds("place_duration", "From the parsed request to the pick");
        let pick = seconds("pick_duration", "Choosing an endpoint and reserving it");
        let tokens = seconds("tokens_duration", "Getting the token ids of a request's prompts");
        let bounds = || {
            [
                0.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0,
            ]
        };
        let mut counts = |name: &str, help: &str| {
            let histogram = Histogram::new(bounds());
            registry.register_with_unit(name, help, Unit::Other("tokens".to_owned()), histogram.clone());
            histogram
        };
        let prompt = counts("prompt", "Prompt length of placed requests");
        let hit = counts(
            "predicted_hit",
            "Prompt tokens predicted to be cached where the request was sent",
        );
        let hit_error = counts(
            "hit_error",
            "Difference between predicted and real cached tokens, where it could be checked",
        );
        let family = Family::<RungLabel, Counter>::default();
        registry.register(
            "token_requests",
            "Requests by the rung of the ladder that their tokens came from",
            family.clone(),
        );
        let rungs = Rung::ALL.map(|rung| family.get_or_create_owned(&RungLabel { rung: rung.name() }));
        let queue_full = Counter::default();
        registry.register(
            "token_queue_full",
            "Requests whose tokens were estimated because the tokenizer's queue was full",
            queue_full.clone(),
        );
        let out_of_budget = Counter::default();
        registry.register(
            "token_budget_exceeded",
            "Requests whose tokens were estimated because the ladder's budget was spent",
            out_of_budget.clone(),
        );
        Self {
            place,
            pick,
            tokens,
            prompt,
            hit,
            hit_error,
            rungs,
            queue_full,
            out_of_budget,
        }
    }

    /// A request's tokens came from `rung`.
    pub fn used(&self, rung: Rung) {
        self.rungs[rung as usize].inc();
    }
}
