//! `/debug/endpoints` and `/debug/decisions`, as JSON.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Query, State},
    routing::get,
};
use lmetric_kvevents::{SourceState, transport::SourceStats};
use lmetric_prefix::{BlockSize, SourceId};
use lmetric_scheduler::{Decision, EndpointView, Scheduler};
use serde::{Deserialize, Serialize};

use super::state_name;
use crate::{
    clock::Clock,
    fleet::{Fleet, Member},
    scrape::EngineMetrics,
    tokens::Ladder,
};

/// Decisions in an answer that does not say how many.
const DECISIONS: usize = 100;
/// Most decisions that the scheduler keeps, so the most that are searched for an id.
const KEPT: usize = 1_000;

/// What the pages read.
#[derive(Clone)]
pub struct Pages {
    /// The ledger.
    pub scheduler: Arc<Scheduler>,
    /// Who takes part.
    pub fleet: Arc<Fleet>,
    /// Where tokens come from.
    pub ladder: Arc<Ladder>,
    /// The process's clock.
    pub clock: Clock,
}

/// The routes, to merge into the admin server.
pub fn router(pages: Pages) -> Router {
    Router::new()
        .route("/debug/endpoints", get(endpoints))
        .route("/debug/decisions", get(decisions))
        .with_state(pages)
}

#[derive(Serialize)]
struct Endpoints {
    /// Nanoseconds since the picker began, the clock of all times here.
    now: u64,
    endpoints: Vec<EndpointPage>,
}

#[derive(Serialize)]
struct EndpointPage {
    #[serde(flatten)]
    view: EndpointView,
    model: Option<String>,
    terminating: Option<bool>,
    /// UID of its pod, on Kubernetes.
    pod: Option<String>,
    block_size: Option<u32>,
    source: SourcePage,
    tokens: TokensPage,
    engine: EnginePage,
}

#[derive(Serialize)]
struct SourcePage {
    /// `live`, `partial`, `stale`, `down`, or `none`: the endpoint publishes nothing.
    state: &'static str,
    batches: u64,
    unknown_fields: u64,
    stored: u64,
    removed: u64,
    skipped: u64,
    malformed: u64,
    unnamed_lora: u64,
    gaps: u64,
    replays: u64,
    fenced: u64,
    clears: u64,
    restarts: u64,
    held: u64,
    offloaded: u64,
    orphans: u64,
    adopted: u64,
    orphans_dropped: u64,
    used: u64,
    bound: u64,
    copies_forgotten: u64,
    refused: u64,
    degraded: bool,
    last_seq: Option<u64>,
}

#[derive(Serialize)]
struct TokensPage {
    group: Option<String>,
    /// The rung that requests of the group start on.
    rung: &'static str,
    /// The group's tokenizer is not believed: too many requests did not match what engines stored.
    mistrusted: bool,
}

#[derive(Serialize)]
struct EnginePage {
    running: Option<u32>,
    waiting: Option<u32>,
    kv_usage: Option<f64>,
    gpu_blocks: Option<u32>,
    prefix_caching: Option<bool>,
    awake: Option<bool>,
    /// Why the last read failed.
    error: Option<String>,
}

impl SourcePage {
    fn new(source: Option<(SourceState, SourceStats)>) -> Self {
        let state = source.as_ref().map_or("none", |(state, _)| state_name(*state));
        let SourceStats {
            batches,
            unknown_fields,
            stored,
            removed,
            skipped,
            malformed,
            unnamed_lora,
            gaps,
            replays,
            fenced,
            clears,
            restarts,
            held,
            offloaded,
            orphans,
            adopted,
            orphans_dropped,
            used,
            bound,
            copies_forgotten,
            refused,
            degraded,
            last_seq,
        } = source.map(|(_, stats)| stats).unwrap_or_default();
        Self {
            state,
            batches,
            unknown_fields,
            stored,
            removed,
            skipped,
            malformed,
            unnamed_lora,
            gaps,
            replays,
            fenced,
            clears,
            restarts,
            held,
            offloaded,
            orphans,
            adopted,
            orphans_dropped,
            used,
            bound,
            copies_forgotten,
            refused,
            degraded,
            last_seq,
        }
    }
}

impl EnginePage {
    fn new(metrics: &EngineMetrics, error: Option<String>) -> Self {
        let EngineMetrics {
            running,
            waiting,
            kv_usage,
            block_size: _,
            gpu_blocks,
            prefix_caching,
            awake,
        } = *metrics;
        Self {
            running,
            waiting,
            kv_usage,
            gpu_blocks,
            prefix_caching,
            awake,
            error,
        }
    }
}

async fn endpoints(State(pages): State<Pages>) -> Json<Endpoints> {
    let now = pages.clock.now();
    let members = pages.fleet.members();
    let endpoints = pages
        .scheduler
        .endpoints(now)
        .into_iter()
        .map(|view| {
            let member = members.slot(SourceId(view.slot));
            pages.endpoint(view, member.map(|member| &**member))
        })
        .collect();
    Json(Endpoints {
        now: now.0,
        endpoints,
    })
}

impl Pages {
    fn endpoint(&self, view: EndpointView, member: Option<&Member>) -> EndpointPage {
        let source = member.and_then(|member| member.with_source(|source| (source.state(), source.stats())));
        let endpoint = member.map(Member::endpoint);
        let group = member.map(|member| member.group.to_string());
        let name = group.as_deref().unwrap_or_default();
        let tokens = TokensPage {
            rung: self.ladder.first_rung(name).name(),
            mistrusted: self
                .ladder
                .group(name)
                .is_some_and(|group| !group.trust.is_kept()),
            group,
        };
        EndpointPage {
            view,
            model: endpoint.as_ref().map(|endpoint| endpoint.model.clone()),
            terminating: endpoint.as_ref().map(|endpoint| endpoint.terminating),
            pod: endpoint
                .and_then(|endpoint| endpoint.pod)
                .map(|pod| pod.to_string()),
            block_size: member.and_then(Member::block_size).map(BlockSize::get),
            source: SourcePage::new(source),
            tokens,
            engine: EnginePage::new(
                &member.map(Member::engine).unwrap_or_default(),
                member.and_then(|member| member.target.last_error()),
            ),
        }
    }
}

#[derive(Deserialize)]
struct DecisionsQuery {
    n: Option<usize>,
    id: Option<String>,
}

#[derive(Serialize)]
struct Decisions {
    /// Nanoseconds since the picker began, the clock of each decision's `at`.
    now: u64,
    /// Newest first.
    decisions: Vec<Decision>,
}

async fn decisions(State(pages): State<Pages>, Query(query): Query<DecisionsQuery>) -> Json<Decisions> {
    let most = query.n.unwrap_or(DECISIONS).min(KEPT);
    let decisions = match query.id {
        Some(id) => {
            let mut decisions = pages.scheduler.decisions(KEPT);
            decisions.retain(|decision| decision.request_id == id);
            decisions.truncate(most);
            decisions
        }
        None => pages.scheduler.decisions(most),
    };
    Json(Decisions {
        now: pages.clock.now().0,
        decisions,
    })
}
