//! INTERFACE SKELETON of what `epp`, the simulator and the tests call.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use lmetric_prefix::{BlockKey, BlockSize, Chain, ContentHash, SharedIndex, SourceId};

/// A moment, in nanoseconds since the process (or the simulation) began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// An endpoint's slot (= its [`SourceId`]) and the generation of that slot: a stale id never meets a newer endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId {
    /// Slot, shared with the prefix index.
    pub slot: SourceId,
    /// Counts the endpoints that have had this slot.
    pub generation: u32,
}

/// One open reservation; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(pub u64);

/// One address that serves requests: pod × port × data-parallel rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Where the proxy sends the request.
    pub address: SocketAddr,
    /// Rank behind that address when several share it.
    pub rank: Option<u16>,
    /// Engines of one tokenizer group share model and tokenizer.
    pub group: Arc<str>,
    /// Tokens per block, once known; without it the endpoint counts by load only.
    pub block_size: Option<BlockSize>,
}

/// What a request's key chain must be computed for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpaceSpec {
    /// Tokenizer group.
    pub group: Arc<str>,
    /// Tokens per block.
    pub block_size: BlockSize,
}

/// One distinct prompt of a request.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// L, in tokens.
    pub tokens: u32,
    /// Its full blocks, once for each distinct key space among the endpoints (at most four). A chain may be
    /// shorter than `tokens / block_size` (multimodal: the match stops at the first placeholder).
    pub chains: Vec<(SpaceSpec, Arc<Chain>)>,
}

/// Endpoints that the proxy allows: an address, or every port of an IP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subset(pub Vec<(IpAddr, Option<u16>)>);

/// One request to place.
#[derive(Clone, Debug)]
pub struct PickRequest<'a> {
    /// For `/debug/decisions` and `lmetric explain`.
    pub request_id: &'a str,
    /// Model name asked for, for the decision ring.
    pub model: &'a str,
    /// Distinct prompts. Empty: placed by load only.
    pub prompts: &'a [Prompt],
    /// Engine requests that this HTTP request becomes (prompts × n), at least 1.
    pub weight: u32,
    /// Token counts are estimates; Q falls by rate.
    pub estimated: bool,
    /// Subset hint of the proxy. An empty list allows nobody.
    pub subset: Option<&'a Subset>,
    /// LoRA adapter asked for; only endpoints able to serve it are candidates.
    pub lora: Option<&'a str>,
    /// Hash of the session, for policies that stick to one.
    pub session: Option<u64>,
}

/// The choice for one request; its load is already reserved.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// To release later.
    pub reservation: ReservationId,
    /// Chosen endpoint.
    pub endpoint: EndpointId,
    /// Its address.
    pub address: SocketAddr,
    /// Its rank, when several share the address.
    pub rank: Option<u16>,
    /// Predicted hit, tokens, over all prompts.
    pub hit_tokens: u64,
    /// Uncached prompt tokens charged to the endpoint.
    pub charged_tokens: u64,
}

/// Why nobody can serve the request (503).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEndpoint {
    /// No endpoint is ready.
    #[error("no endpoint is ready")]
    NoneReady,
    /// The proxy's subset names none of the ready ones.
    #[error("none of the {ready} ready endpoints is in the gateway's subset")]
    SubsetEmpty {
        /// How many are ready.
        ready: usize,
    },
    /// No ready endpoint can serve the adapter.
    #[error("no ready endpoint can serve the adapter {adapter:?}")]
    AdapterUnknown {
        /// Adapter asked for.
        adapter: String,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Normally (whatever 2xx–4xx).
    Done,
    /// The client left.
    ClientAbort,
    /// The engine answered 5xx.
    ServerError,
    /// Reset before response headers, or ended without `:status`.
    Unreachable,
    /// The picker lost sight of it (stream reset in a drain and the like); counts for nobody.
    Unknown,
}

/// What one scrape of an engine said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeSample {
    /// When the scrape was sent.
    pub sent: Time,
    /// `vllm:num_requests_running`.
    pub running: u32,
    /// `vllm:num_requests_waiting`.
    pub waiting: u32,
}

/// One candidate as it was seen at a pick.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct CandidateView {
    /// Slot.
    pub slot: u16,
    /// Hit tokens over all prompts.
    pub hit: u32,
    /// Q before this request.
    pub q: u32,
    /// BS before this request, foreign load included.
    pub bs: u32,
    /// The policy's score; smaller is better.
    pub score: f64,
    /// Removed by the hotspot filter.
    pub filtered: bool,
}

/// A finished pick, for `/debug/decisions`.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Decision {
    /// Request id.
    pub request_id: String,
    /// Model.
    pub model: String,
    /// When, nanoseconds since start.
    pub at: u64,
    /// Policy.
    pub policy: &'static str,
    /// Prompt tokens over all prompts.
    pub tokens: u32,
    /// w.
    pub weight: u32,
    /// Winner's address.
    pub winner: String,
    /// Winner's rank.
    pub rank: Option<u16>,
    /// How many candidates tied with the winner.
    pub ties: u32,
    /// Candidates, best first (the 64 best and the winner), each with the address it had.
    pub candidates: Vec<(String, CandidateView)>,
    /// How many candidates there were in all.
    pub candidate_count: u32,
    /// Hotspot class whose holders were filtered out, if any.
    pub filtered_class: Option<u64>,
}

/// One endpoint now, for `/debug/endpoints` and metrics.
#[derive(Clone, Debug, serde::Serialize)]
pub struct EndpointView {
    /// `ip:port`.
    pub address: SocketAddr,
    /// Rank.
    pub rank: Option<u16>,
    /// Slot.
    pub slot: u16,
    /// Q of own reservations, tokens.
    pub q: u64,
    /// Own BS.
    pub bs: u64,
    /// Foreign BS (added to BS in picks).
    pub foreign_bs: u64,
    /// Foreign queued tokens (added to Q in picks).
    pub foreign_q: u64,
    /// Blocks held in the index.
    pub blocks: usize,
    /// Blocks in the overlay.
    pub optimistic_blocks: usize,
    /// Ready to take requests.
    pub ready: bool,
    /// Out until then (nanoseconds), if ejected.
    pub ejected_until: Option<u64>,
    /// Tokens stored per second while Q > 0.
    pub rate: f64,
}

/// Settings of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// Which policy.
    pub policy: PolicyKind,
    /// Hotspot detector's action.
    pub hotspot: HotspotAction,
    /// Prefill rate assumed before anything was measured, tokens/s.
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

/// Policies by name.
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

impl std::str::FromStr for PolicyKind {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let _ = name;
        unimplemented!()
    }
}

/// Counters that only grow; read for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Picks made.
    pub picks: u64,
    /// Requests refused for want of an endpoint.
    pub refused: u64,
    /// Reservations closed by each outcome: done, abort, server error, unreachable, unknown.
    pub released: [u64; 5],
    /// Q released by rate instead of by events.
    pub released_by_rate: u64,
    /// Hotspot alarms raised.
    pub alarms: u64,
    /// Hotspot filters put in force.
    pub filters: u64,
    /// Ejections.
    pub ejections: u64,
    /// Requests served elsewhere than picked.
    pub moved: u64,
    /// Requests whose engine stored blocks but none of the request's keys.
    pub token_mismatches: u64,
}

/// A prediction checked when it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitCheck {
    /// Predicted hit tokens.
    pub predicted: u64,
    /// What the engine really hit.
    pub real: u64,
}

/// Choose, reserve, follow, release. All methods are safe to call from many threads.
pub struct Scheduler {}

impl Scheduler {
    /// An empty scheduler over `index`.
    pub fn new(config: SchedulerConfig, index: Arc<SharedIndex>) -> Self {
        let _ = (config, index);
        unimplemented!()
    }
    /// Adds an endpoint (not ready yet). `None` when all 65,536 slots are taken.
    pub fn add(&self, spec: EndpointSpec) -> Option<EndpointId> {
        let _ = spec;
        unimplemented!()
    }
    /// Removes it; its reservations are closed under the same lock. The caller clears the index afterwards and
    /// only then calls [`Scheduler::free_slot`].
    pub fn remove(&self, id: EndpointId, now: Time) {
        let _ = (id, now);
        unimplemented!()
    }
    /// The slot's index entries are gone: it may be used again.
    pub fn free_slot(&self, slot: SourceId) {
        let _ = slot;
        unimplemented!()
    }
    /// Ready to take new requests, or not (terminating, health unknown).
    pub fn set_ready(&self, id: EndpointId, ready: bool) {
        let _ = (id, ready);
        unimplemented!()
    }
    /// Tokens per block became known.
    pub fn set_block_size(&self, id: EndpointId, size: BlockSize) {
        let _ = (id, size);
        unimplemented!()
    }
    /// Adapters it can serve; `None` = unknown (then any adapter is assumed).
    pub fn set_adapters(&self, id: EndpointId, adapters: Option<Vec<String>>) {
        let _ = (id, adapters);
        unimplemented!()
    }
    /// Whether its KV events can be trusted for progress; when not, Q falls by rate.
    pub fn set_source_live(&self, id: EndpointId, live: bool, now: Time) {
        let _ = (id, live, now);
        unimplemented!()
    }
    /// Its engine restarted: reservations on it are closed.
    pub fn restarted(&self, id: EndpointId, now: Time) {
        let _ = (id, now);
        unimplemented!()
    }
    /// Changes policy and detector at run time; state of the ledger stays.
    pub fn reconfigure(&self, config: SchedulerConfig) {
        let _ = config;
        unimplemented!()
    }
    /// Distinct (group, block size) among endpoints, at most four: what chains a request needs. Lock-free.
    pub fn spaces(&self) -> Arc<[SpaceSpec]> {
        unimplemented!()
    }
    /// Chooses and reserves. O(endpoints + look-up).
    pub fn pick(
        &self,
        request: &PickRequest<'_>,
        now: Time,
        rng: &mut dyn rand::RngCore,
    ) -> Result<Pick, NoEndpoint> {
        let _ = (request, now, rng);
        unimplemented!()
    }
    /// Blocks were stored on `slot`, in order as (parent, key); the index already has them.
    pub fn stored(&self, slot: SourceId, blocks: &[(BlockKey, BlockKey)], now: Time) {
        let _ = (slot, blocks, now);
        unimplemented!()
    }
    /// The first generated output of the request was seen.
    pub fn first_output(&self, id: ReservationId, now: Time) {
        let _ = (id, now);
        unimplemented!()
    }
    /// The gateway says that the request was really served there.
    pub fn served_by(&self, id: ReservationId, address: SocketAddr, now: Time) {
        let _ = (id, address, now);
        unimplemented!()
    }
    /// `cached_tokens` of the answer: checks the prediction; returns keys that are held by inference, if any are new.
    pub fn cached_tokens(&self, id: ReservationId, tokens: u64) -> Option<HitCheck> {
        let _ = (id, tokens);
        unimplemented!()
    }
    /// Ends the reservation, exactly once; later calls do nothing. True the first time.
    pub fn release(&self, id: ReservationId, outcome: Outcome, now: Time) -> bool {
        let _ = (id, outcome, now);
        unimplemented!()
    }
    /// A scrape succeeded.
    pub fn scraped(&self, id: EndpointId, sample: ScrapeSample, now: Time) {
        let _ = (id, sample, now);
        unimplemented!()
    }
    /// A scrape failed; `refused` when the connection was refused.
    pub fn scrape_failed(&self, id: EndpointId, refused: bool, now: Time) {
        let _ = (id, refused, now);
        unimplemented!()
    }
    /// Moves time-driven state on: Q that falls by rate, windows, ejections. Picks do it for themselves.
    pub fn tick(&self, now: Time) {
        let _ = now;
        unimplemented!()
    }
    /// An open reservation on `slot` that has blocks with these contents in a row: (key before, keys before it).
    pub fn find_contents(
        &self,
        slot: SourceId,
        contents: &[ContentHash],
    ) -> Option<(BlockKey, Vec<BlockKey>)> {
        let _ = (slot, contents);
        unimplemented!()
    }
    /// Every endpoint now.
    pub fn endpoints(&self, now: Time) -> Vec<EndpointView> {
        let _ = now;
        unimplemented!()
    }
    /// The latest decisions, newest first.
    pub fn decisions(&self, most: usize) -> Vec<Decision> {
        let _ = most;
        unimplemented!()
    }
    /// Counters so far.
    pub fn counters(&self) -> Counters {
        unimplemented!()
    }
    /// Hit checks since the last call (bounded; for a histogram).
    pub fn take_hit_checks(&self) -> Vec<HitCheck> {
        unimplemented!()
    }
    /// Open reservations.
    pub fn open(&self) -> usize {
        unimplemented!()
    }
    /// How long a scrape may be away before its sample no longer counts.
    pub fn scrape_patience(&self) -> Duration {
        unimplemented!()
    }
}
