//! What `/live` says of this moment. Numbers, addresses of endpoints, words of ours: nothing that a client wrote.

use std::{collections::HashSet, sync::Arc};

use lmetric_prefix::SourceId;
use lmetric_scheduler::{Counters, Decision, EndpointView, HotspotNote, Outcome, Recent, Time, reason};
use lmetric_telemetry::Readiness;
use serde::Serialize;
use tokio::time::Instant;

use super::{super::state_name, Pages, feed};
use crate::fleet::Member;

/// Picks in a snapshot.
const PICKS: usize = 12;
/// Hotspots in a snapshot.
const HOTSPOTS: usize = 16;
/// Bytes of an engine's error that are shown.
const WHY: usize = 160;

/// Where snapshots come from.
pub(super) struct Source {
    pub(super) pages: Pages,
    pub(super) readiness: Readiness,
    pub(super) speed: f64,
}

#[derive(Serialize)]
struct Snapshot {
    version: &'static str,
    /// Seconds since the picker began.
    now: f64,
    /// Model seconds per real second; rates and times of requests are shown in model time.
    speed: f64,
    policy: &'static str,
    /// What stands in the way of being ready.
    reasons: Vec<String>,
    totals: Totals,
    recent: Figures,
    endpoints: Vec<EndpointRow>,
    hotspots: Vec<Hotspot>,
    /// Newest first.
    decisions: Vec<PickRow>,
}

/// Counted since the picker began.
#[derive(Serialize)]
struct Totals {
    picks: u64,
    refused: u64,
    done: u64,
    aborted: u64,
    failed: u64,
    unknown: u64,
    moved: u64,
    ejections: u64,
    alarms: u64,
    filters: u64,
}

/// Means over the latest requests; times in model seconds.
#[derive(Serialize)]
struct Figures {
    hit: Option<f64>,
    ttft: Option<f64>,
    tpot: Option<f64>,
}

#[derive(Serialize)]
struct EndpointRow {
    address: String,
    rank: Option<u16>,
    model: Option<String>,
    state: &'static str,
    /// Seconds until an ejected one is tried again.
    back_in: Option<f64>,
    why: Option<String>,
    /// BS and Q as picks see them, foreign load included.
    bs: u64,
    q: u64,
    foreign: u64,
    /// Part of its KV cache that requests use, as it says itself.
    cache: Option<f64>,
    blocks: usize,
    /// State of its event stream.
    events: &'static str,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Serialize)]
struct Hotspot {
    class: String,
    depth_tokens: u32,
    in_force: bool,
    holders: u32,
    others: u32,
    arrivals: u32,
    all_arrivals: u32,
}

#[derive(Serialize)]
struct PickRow {
    /// Seconds ago.
    age: f64,
    /// `None` where no endpoint is known to serve it.
    model: Option<String>,
    tokens: u32,
    hit: u32,
    weight: u32,
    winner: String,
    rank: Option<u16>,
    why: String,
}

impl Source {
    /// Everything now, as JSON. O(endpoints), a few milliseconds for hundreds.
    pub(super) fn snapshot(&self) -> feed::Snapshot {
        let Pages {
            scheduler,
            fleet,
            clock,
            ladder: _,
        } = &self.pages;
        let now = clock.now();
        let members = fleet.members();
        let catalog = fleet.catalog();
        let views = scheduler.endpoints(now);
        let recent = views
            .iter()
            .fold(Recent::default(), |sum, view| sum.plus(view.recent));
        let endpoints: Vec<EndpointRow> = views
            .iter()
            .map(|view| {
                let member = members.slot(SourceId(view.slot));
                self.endpoint(view, member.map(|member| &**member), now)
            })
            .collect();
        let served: HashSet<&str> = endpoints.iter().filter_map(|row| row.model.as_deref()).collect();
        let decisions = scheduler.decisions(PICKS);
        let is_served = |model: &str| served.contains(model) || catalog.get(model).is_some();
        let decisions = decisions
            .into_iter()
            .map(|decision| PickRow::new(decision, now, is_served))
            .collect();
        let snapshot = Snapshot {
            version: env!("CARGO_PKG_VERSION"),
            now: now.secs_since(Time::default()),
            speed: self.speed,
            policy: scheduler.policy().name(),
            reasons: self.readiness.reasons().lines().map(str::to_owned).collect(),
            totals: Totals::new(&scheduler.counters()),
            recent: self.figures(&recent),
            endpoints,
            hotspots: scheduler
                .hotspots()
                .into_iter()
                .take(HOTSPOTS)
                .map(Hotspot::new)
                .collect(),
            decisions,
        };
        let text = serde_json::to_string(&snapshot).expect("a snapshot has only string keys");
        Arc::from(text)
    }

    fn endpoint(&self, view: &EndpointView, member: Option<&Member>, now: Time) -> EndpointRow {
        let EndpointView {
            address,
            rank,
            slot: _,
            q,
            bs,
            foreign_bs,
            foreign_q,
            kv_tokens: _,
            kv_used: _,
            blocks,
            optimistic_blocks: _,
            ready,
            ejected_until,
            rate: _,
            recent,
        } = *view;
        let back_in = ejected_until
            .filter(|until| *until > now.0)
            .map(|until| Time(until).secs_since(now));
        let state = match (ready, back_in) {
            (true, None) => "ready",
            (true, Some(_)) => "ejected",
            (false, _) => member.map_or("leaving", not_ready),
        };
        let error = member.and_then(|member| member.target.last_error());
        EndpointRow {
            address: address.to_string(),
            rank,
            model: member
                .map(|member| member.endpoint().model)
                .filter(|model| !model.is_empty()),
            state,
            back_in: back_in.filter(|_| ready).map(rounded),
            why: error.map(|error| error[..error.floor_char_boundary(WHY)].to_owned()),
            bs: bs + foreign_bs,
            q: q + foreign_q,
            foreign: foreign_bs,
            cache: member.and_then(|member| member.engine().kv_usage).map(rounded),
            blocks,
            events: member
                .and_then(|member| member.with_source(|source| state_name(source.state())))
                .unwrap_or("none"),
            figures: self.figures(&recent),
        }
    }

    fn figures(&self, recent: &Recent) -> Figures {
        let model = |real: f64| rounded(real * self.speed);
        Figures {
            hit: recent.hit_ratio().map(rounded),
            ttft: recent.ttft().map(model),
            tpot: recent.tpot().map(model),
        }
    }
}

/// Why an endpoint gets no request, in a word.
fn not_ready(member: &Member) -> &'static str {
    let endpoint = member.endpoint();
    if endpoint.terminating || member.is_drained() {
        "draining"
    } else if member.engine().awake == Some(false) {
        "asleep"
    } else if !endpoint.ready || member.target.is_up(Instant::now()) {
        "not ready"
    } else if member.target.was_tried() {
        "unreachable"
    } else {
        "starting"
    }
}

impl Totals {
    fn new(counters: &Counters) -> Self {
        let ended = |outcome: Outcome| counters.released[outcome.index()];
        Self {
            picks: counters.picks,
            refused: counters.refused,
            done: ended(Outcome::Done),
            aborted: ended(Outcome::ClientAbort),
            failed: ended(Outcome::ServerError) + ended(Outcome::Unreachable),
            unknown: ended(Outcome::Unknown),
            moved: counters.moved,
            ejections: counters.ejections,
            alarms: counters.alarms,
            filters: counters.filters,
        }
    }
}

impl Hotspot {
    fn new(note: HotspotNote) -> Self {
        let HotspotNote {
            class,
            depth_tokens,
            in_force,
            holders,
            others,
            arrivals,
            all_arrivals,
        } = note;
        Self {
            class: format!("{class:016x}"),
            depth_tokens,
            in_force,
            holders,
            others,
            arrivals,
            all_arrivals,
        }
    }
}

impl PickRow {
    /// The request's id and a model that nobody serves are the client's words, and stay out.
    fn new(decision: Decision, now: Time, is_served: impl Fn(&str) -> bool) -> Self {
        Self {
            age: rounded(now.secs_since(Time(decision.at))),
            tokens: decision.tokens,
            hit: decision.won().map_or(0, |won| won.hit),
            weight: decision.weight,
            why: reason(&decision),
            model: Some(decision.model).filter(|model| is_served(model)),
            winner: decision.winner,
            rank: decision.rank,
        }
    }
}

/// Microseconds and millionths are more than anybody reads.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
