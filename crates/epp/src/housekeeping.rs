//! What happens a few times a second whatever requests do: the ledger's clock, the self-check, readiness.

use std::{collections::HashMap, sync::Arc, time::Duration};

use lmetric_kvevents::SourceState;
use lmetric_scheduler::{HitCheck, HotspotNote, Scheduler, TokenCheck};
use lmetric_telemetry::Readiness;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    discovery::EndpointSet,
    fleet::{Fleet, Source},
    metrics::PlaceMetrics,
    tokens::Ladder,
};

/// Between two ticks at speed 1.
const TICK: Duration = Duration::from_millis(250);
/// However fast the clock runs.
const SHORTEST_TICK: Duration = Duration::from_millis(20);
/// Engines that have not answered by then do not keep the picker from being ready.
const PATIENCE: Duration = Duration::from_secs(10);
/// What stands in the way of readiness at start.
const ENDPOINTS: &str = "endpoints";
const SOURCES: &str = "sources";

/// The chores and what they work on.
pub struct Housekeeping {
    /// Who takes part.
    pub fleet: Arc<Fleet>,
    /// The ledger.
    pub scheduler: Arc<Scheduler>,
    /// Whose trust may end.
    pub ladder: Arc<Ladder>,
    /// Where hit errors are counted.
    pub metrics: PlaceMetrics,
    /// Divides the tick.
    pub speed: f64,
}

impl Housekeeping {
    /// Ticks until `token` is cancelled.
    pub async fn run(self, token: CancellationToken) {
        let mut period = tokio::time::interval(TICK.div_f64(self.speed).max(SHORTEST_TICK));
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                _ = period.tick() => self.tick(),
            }
        }
    }

    fn tick(&self) {
        self.fleet.tick();
        for HitCheck { predicted, real } in self.scheduler.take_hit_checks() {
            self.metrics.hit_error.observe(predicted.abs_diff(real) as f64);
        }
        for note in self.scheduler.take_hotspot_notes() {
            log_hotspot(note);
        }
        let mut groups: HashMap<Arc<str>, (u32, u32)> = HashMap::new();
        for TokenCheck { group, matched } in self.scheduler.take_token_checks() {
            let (checked, mismatched) = groups.entry(group).or_default();
            *checked += 1;
            *mismatched += u32::from(!matched);
        }
        for (group, (checked, mismatched)) in groups {
            let lost = self.ladder.group(&group).is_some_and(|tokens| {
                tokens.tokenizer.is_some() && tokens.trust.checked(checked, mismatched)
            });
            if lost {
                tracing::error!(
                    model = &*group,
                    "engines store other blocks than the tokenizer and chat template make: \
                     tokens of this model come from the engines from now on; \
                     give the picker the tokenizer folder that the engines use"
                );
            }
        }
    }
}

fn log_hotspot(note: HotspotNote) {
    let HotspotNote {
        class,
        depth_tokens,
        in_force,
        holders,
        others,
        arrivals,
        all_arrivals,
    } = note;
    let class = format_args!("{class:016x}");
    if in_force {
        tracing::warn!(%class, depth_tokens, holders, others, arrivals, all_arrivals, "hotspot: its holders are avoided");
    } else {
        tracing::info!(%class, depth_tokens, holders, others, arrivals, all_arrivals, "hotspot alarm");
    }
}

/// Says what stands in the way until the endpoints are known and have answered, and every source is replayed
/// or known to be cold.
pub struct Starting {
    readiness: Readiness,
    fleet: Arc<Fleet>,
}

impl Starting {
    /// Not ready yet.
    pub fn new(readiness: Readiness, fleet: Arc<Fleet>) -> Self {
        readiness.block(ENDPOINTS, "the endpoints are not known yet");
        readiness.block(SOURCES, "the endpoints are not known yet");
        Self { readiness, fleet }
    }

    /// Watches until everything is ready or its patience is over, then until `token` is cancelled.
    pub async fn run(self, mut sets: watch::Receiver<Option<EndpointSet>>, token: CancellationToken) {
        let watching = async {
            let known = sets.wait_for(Option::is_some).await;
            let Some(wanted) = known.ok().and_then(|set| set.as_ref().map(|set| set.len())) else {
                return;
            };
            let known_at = Instant::now();
            while !self.look(wanted, known_at.elapsed() > PATIENCE) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = token.cancelled() => {}
            () = watching => token.cancelled().await,
        }
    }

    /// True when nothing stands in the way any more.
    fn look(&self, wanted: usize, patience_is_over: bool) -> bool {
        let members = self.fleet.members();
        // the first set may not be reconciled yet
        if members.len() < wanted && !patience_is_over {
            return false;
        }
        let silent = members.iter().filter(|member| !member.target.was_tried()).count();
        let behind = members
            .iter()
            .filter(|member| {
                let state = member.with_source(Source::state);
                let caught_up = matches!(state, None | Some(SourceState::Live | SourceState::Partial));
                // an engine that is not up has nothing to replay
                !caught_up && (member.target.is_up(Instant::now()) || !member.target.was_tried())
            })
            .count();
        for (what, count, words) in [
            (ENDPOINTS, silent, "engines were not read yet"),
            (SOURCES, behind, "sources of KV events are not replayed yet"),
        ] {
            if count == 0 || patience_is_over {
                self.readiness.clear(what);
            } else {
                self.readiness
                    .block(what, format!("{count} of {} {words}", members.len()));
            }
        }
        patience_is_over || silent + behind == 0
    }
}
