//! What others count, read when the metrics page is asked for.

use std::{fmt, sync::Arc};

use lmetric_kvevents::transport::SourceStats;
use lmetric_prefix::SharedIndex;
use lmetric_scheduler::{Counters, EndpointView, Outcome, Scheduler};
use lmetric_telemetry::prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

use crate::{admin::state_name, clock::Clock, fleet::Fleet};

/// Reads scheduler, index and sources for the metrics page.
pub struct Export {
    /// The ledger.
    pub scheduler: Arc<Scheduler>,
    /// Who holds what.
    pub index: Arc<SharedIndex>,
    /// Who takes part.
    pub fleet: Arc<Fleet>,
    /// The process's clock.
    pub clock: Clock,
}

impl fmt::Debug for Export {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Export")
    }
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct EndpointLabel {
    endpoint: String,
    rank: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct StateLabel {
    endpoint: String,
    rank: String,
    state: &'static str,
}

/// Name, help, value.
type Row<T, V = f64> = (&'static str, &'static str, fn(&T) -> V);

const ENDPOINT: &[Row<EndpointView>] = &[
    (
        "endpoint_ready",
        "Whether the endpoint may get requests",
        |view| f64::from(u8::from(view.ready)),
    ),
    (
        "endpoint_ejected",
        "Whether the endpoint is out for its failures",
        |view| f64::from(u8::from(view.ejected_until.is_some())),
    ),
    (
        "endpoint_requests",
        "Own requests assigned and not finished (BS)",
        |view| view.bs as f64,
    ),
    (
        "endpoint_queued_tokens",
        "Own uncached prompt tokens assigned and not computed (Q)",
        |view| view.q as f64,
    ),
    (
        "endpoint_foreign_requests",
        "Requests seen on the engine that are not ours",
        |view| view.foreign_bs as f64,
    ),
    (
        "endpoint_foreign_queued_tokens",
        "Tokens charged for them",
        |view| view.foreign_q as f64,
    ),
    (
        "endpoint_blocks",
        "Blocks that the endpoint is known to hold",
        |view| view.blocks as f64,
    ),
    (
        "endpoint_optimistic_blocks",
        "Blocks that open requests are about to fill",
        |view| view.optimistic_blocks as f64,
    ),
    (
        "endpoint_prefill_tokens_per_second",
        "Tokens stored per second while prompts were queued",
        |view| view.rate,
    ),
];

const SOURCE_GAUGES: &[Row<SourceStats>] = &[
    (
        "source_blocks",
        "Blocks that the source's events say are held",
        |stats| stats.held as f64,
    ),
    (
        "source_orphan_blocks",
        "Stored blocks whose parent is not known yet",
        |stats| stats.orphans as f64,
    ),
    (
        "source_entries",
        "Entries that count against the source's bound",
        |stats| stats.used as f64,
    ),
    ("source_entry_bound", "Most entries kept of the source", |stats| {
        stats.bound as f64
    }),
    (
        "source_degraded",
        "Whether stores were refused since the last clear",
        |stats| f64::from(u8::from(stats.degraded)),
    ),
];

const SOURCE_COUNTERS: &[Row<SourceStats, u64>] = &[
    ("source_batches", "Event batches applied", |stats| stats.batches),
    ("source_blocks_stored", "Blocks stored", |stats| stats.stored),
    ("source_blocks_removed", "Blocks removed", |stats| stats.removed),
    (
        "source_events_skipped",
        "Events skipped: unknown tag, wrong shape, other medium or group",
        |stats| stats.skipped,
    ),
    (
        "source_messages_malformed",
        "Messages that did not decode",
        |stats| stats.malformed,
    ),
    ("source_gaps", "Gaps in the sequence of batches", |stats| {
        stats.gaps
    }),
    ("source_replays", "Replays run", |stats| stats.replays),
    ("source_clears", "Times the source was cleared", |stats| {
        stats.clears
    }),
    ("source_restarts", "Restarts of the engine noticed", |stats| {
        stats.restarts
    }),
    (
        "source_orphans_adopted",
        "Orphan blocks that found their place",
        |stats| stats.adopted,
    ),
    (
        "source_orphans_dropped",
        "Orphan blocks dropped at the bound",
        |stats| stats.orphans_dropped,
    ),
    ("source_stores_refused", "Stores refused at the bound", |stats| {
        stats.refused
    }),
];

const OUTCOMES: [Outcome; 5] = [
    Outcome::Done,
    Outcome::ClientAbort,
    Outcome::ServerError,
    Outcome::Unreachable,
    Outcome::Unknown,
];

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::ClientAbort => "client_abort",
        Outcome::ServerError => "server_error",
        Outcome::Unreachable => "unreachable",
        Outcome::Unknown => "unknown",
    }
}

impl Collector for Export {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.counters(&mut encoder)?;
        self.index(&mut encoder)?;
        self.endpoints(&mut encoder)?;
        self.sources(&mut encoder)
    }
}

impl Export {
    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Counters {
            picks,
            refused,
            released,
            released_by_rate,
            alarms,
            filters,
            ejections,
            moved,
            token_mismatches,
        } = self.scheduler.counters();
        for (name, help, value) in [
            ("picks", "Requests placed", picks),
            ("refused", "Requests refused for want of an endpoint", refused),
            (
                "released_by_rate",
                "Requests whose queued tokens were released by rate, not by events",
                released_by_rate,
            ),
            ("hotspot_alarms", "Classes found to be KV-cache hotspots", alarms),
            (
                "hotspot_filters",
                "Times that a hotspot's holders were filtered out",
                filters,
            ),
            (
                "ejections",
                "Times that an endpoint was taken out for its failures",
                ejections,
            ),
            (
                "served_elsewhere",
                "Requests that the gateway sent elsewhere than picked",
                moved,
            ),
            (
                "token_mismatches",
                "Requests whose engine stored blocks but none of the expected ones",
                token_mismatches,
            ),
        ] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let mut metric = encoder.encode_descriptor(
            "released",
            "Requests ended, by outcome",
            None,
            MetricType::Counter,
        )?;
        for (outcome, value) in OUTCOMES.into_iter().zip(released) {
            let label = OutcomeLabel {
                outcome: outcome_name(outcome),
            };
            metric
                .encode_family(&label)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        let mut metric = encoder.encode_descriptor(
            "open_requests",
            "Requests placed and not ended",
            None,
            MetricType::Gauge,
        )?;
        metric.encode_gauge(&(self.scheduler.open() as i64))
    }

    fn index(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (blocks, bytes) = {
            let index = self.index.read();
            (index.len() as i64, index.heap_bytes() as i64)
        };
        for (name, help, value) in [
            ("index_blocks", "Distinct blocks in the prefix index", blocks),
            ("index_bytes", "Memory of the prefix index", bytes),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        Ok(())
    }

    fn endpoints(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let views: Vec<(EndpointLabel, EndpointView)> = self
            .scheduler
            .endpoints(self.clock.now())
            .into_iter()
            .map(|view| (label(view.address.to_string(), view.rank), view))
            .collect();
        for (name, help, value) in ENDPOINT {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (label, view) in &views {
                gauge(&mut metric, label, value(view))?;
            }
        }
        Ok(())
    }

    fn sources(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let members = self.fleet.members();
        let mut states = Vec::new();
        let mut all = Vec::new();
        for member in members.iter() {
            let Some((state, stats)) = member.with_source(|source| (source.state(), source.stats())) else {
                continue;
            };
            let label = label(member.target.address.to_string(), member.rank());
            states.push(StateLabel {
                endpoint: label.endpoint.clone(),
                rank: label.rank.clone(),
                state: state_name(state),
            });
            all.push((label, stats));
        }
        let help = "The source's state (1 for the one it is in)";
        let mut metric = encoder.encode_descriptor("source_state", help, None, MetricType::Gauge)?;
        for label in &states {
            gauge(&mut metric, label, 1.0)?;
        }
        for (name, help, value) in SOURCE_GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (label, stats) in &all {
                gauge(&mut metric, label, value(stats))?;
            }
        }
        for (name, help, value) in SOURCE_COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (label, stats) in &all {
                metric
                    .encode_family(label)?
                    .encode_counter::<NoLabelSet, _, u64>(&value(stats), None)?;
            }
        }
        Ok(())
    }
}

fn label(endpoint: String, rank: Option<u16>) -> EndpointLabel {
    EndpointLabel {
        endpoint,
        rank: rank.map(|rank| rank.to_string()).unwrap_or_default(),
    }
}

fn gauge(metric: &mut MetricEncoder<'_>, label: &impl EncodeLabelSet, value: f64) -> fmt::Result {
    metric.encode_family(label)?.encode_gauge(&value)
}
