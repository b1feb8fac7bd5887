//! One address that serves requests, and all that a pick needs to know about it.

mod ejection;
mod face;
mod fleet;
mod foreign;
mod rate;
mod recent;
mod spaces;

use std::{net::SocketAddr, sync::Arc};

use lmetric_prefix::{BlockSize, SourceId};

pub(crate) use ejection::Ejection;
pub(crate) use face::Face;
pub(crate) use fleet::Fleet;
pub(crate) use foreign::{Foreign, OwnPeak};
pub(crate) use rate::Rate;
pub(crate) use recent::Fading;
pub use recent::Recent;
pub(crate) use spaces::{SpaceId, Spaces};

use crate::{
    Time,
    config::Pace,
    ledger::{Claims, Load, WorkClock},
};

/// An endpoint's slot (= its [`SourceId`]) and the generation of that slot: a stale id never meets a newer endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointId {
    /// Slot, shared with the prefix index.
    pub slot: SourceId,
    /// Counts the endpoints that have had this slot.
    pub generation: u32,
}

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

/// What one scrape of an engine said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScrapeSample {
    /// When the scrape was sent.
    pub sent: Time,
    /// `vllm:num_requests_running`.
    pub running: u32,
    /// `vllm:num_requests_waiting`.
    pub waiting: u32,
}

/// How full a KV cache is. Blocks that no request uses can be evicted and are free here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvUse {
    /// Tokens in blocks that requests use, generated ones included, as the last scrape had it.
    pub(crate) used: u64,
    /// Prompt tokens that were not computed then, or were assigned since: they will take room.
    pub(crate) pledged: u64,
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
    /// Tokens that its KV cache takes, once known.
    pub kv_tokens: Option<u64>,
    /// Tokens of it that requests use, by the last scrape that said so.
    pub kv_used: Option<u64>,
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
    /// How its requests fared lately.
    pub recent: Recent,
}

/// An endpoint as the scheduler keeps it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) id: EndpointId,
    pub(crate) spec: EndpointSpec,
    /// Hash of address and rank: the same in every picker, unlike the slot.
    pub(crate) identity: u64,
    pub(crate) space: Option<SpaceId>,
    /// Tokens that its KV cache takes, once known.
    pub(crate) kv_tokens: Option<u64>,
    /// What of it is taken, once a scrape has said so.
    pub(crate) kv_use: Option<KvUse>,
    pub(crate) ready: bool,
    /// `None`: any adapter is assumed.
    pub(crate) adapters: Option<Vec<String>>,
    /// Whether its events tell of progress.
    pub(crate) live: bool,
    pub(crate) load: Load,
    /// Slab numbers of its open reservations, in no order.
    pub(crate) open: Vec<u32>,
    pub(crate) claims: Claims,
    pub(crate) clock: WorkClock,
    pub(crate) rate: Rate,
    pub(crate) foreign: Foreign,
    pub(crate) peak: OwnPeak,
    pub(crate) ejection: Ejection,
    pub(crate) recent: Fading,
    /// Stored runs so far that belonged to no open reservation.
    pub(crate) strangers: u64,
    /// How many of these have already cast a doubt on a request's tokens.
    pub(crate) strangers_used: u64,
}

impl Endpoint {
    pub(crate) fn new(id: EndpointId, spec: EndpointSpec, space: Option<SpaceId>, pace: Pace) -> Self {
        Self {
            id,
            identity: identity(&spec),
            spec,
            space,
            kv_tokens: None,
            kv_use: None,
            ready: false,
            adapters: None,
            live: false,
            load: Load::default(),
            open: Vec::new(),
            claims: Claims::default(),
            clock: WorkClock::default(),
            rate: Rate::default(),
            foreign: Foreign::default(),
            peak: OwnPeak::new(pace),
            ejection: Ejection::default(),
            recent: Fading::default(),
            strangers: 0,
            strangers_used: 0,
        }
    }

    /// BS whose prefill is not over, foreign load included.
    pub(crate) fn prefilling(&self) -> u64 {
        self.load.prefilling + u64::from(self.foreign.waiting())
    }

    pub(crate) fn serves(&self, adapter: &str) -> bool {
        self.adapters
            .as_ref()
            .is_none_or(|adapters| adapters.iter().any(|known| known == adapter))
    }

    /// BS with foreign load.
    pub(crate) fn batch(&self) -> u64 {
        self.load.bs + u64::from(self.foreign.requests())
    }

    /// Q with foreign load, which counts `mean_prompt` tokens per foreign waiting request.
    pub(crate) fn queued(&self, mean_prompt: f64) -> u64 {
        self.load.q + self.foreign.tokens(mean_prompt)
    }
}

fn identity(spec: &EndpointSpec) -> u64 {
    let ip = match spec.address.ip() {
        std::net::IpAddr::V4(ip) => u128::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => ip.to_bits(),
    };
    let rank = spec.rank.map_or(0, |rank| u64::from(rank) + 1);
    [(ip >> 64) as u64, ip as u64, u64::from(spec.address.port()), rank]
        .into_iter()
        .fold(0, mix)
}

/// A well mixed function of two words (SplitMix64's finaliser).
pub(crate) fn mix(one: u64, other: u64) -> u64 {
    let mut value = one
        .wrapping_add(other.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
