//! One request that is placed and not finished, and how far each of its prompts has come.

use std::sync::Arc;

use lmetric_prefix::{BlockKey, Chain, SourceId};
use smallvec::SmallVec;

use super::{Load, ReservationId};
use crate::{
    PickRequest, Prompt, Time,
    endpoint::{SpaceId, Spaces},
};

/// One distinct prompt of a reservation: `Q = L − b · reach` until something better is known.
#[derive(Debug)]
pub(crate) struct Track {
    /// Its full blocks, once for each key space.
    chains: SmallVec<[(SpaceId, Arc<Chain>); 1]>,
    /// Which of `chains` the endpoint speaks.
    at: Option<u8>,
    /// L.
    pub(crate) tokens: u32,
    /// Predicted hit at the pick, or after it was charged again; blocks.
    pub(crate) predicted: u32,
    /// Blocks that are hit or stored; those from here on are outstanding, and count as held by the overlay.
    pub(crate) reach: u32,
    /// Where its first own run began.
    pub(crate) start: Option<u32>,
    /// Q of this prompt.
    pub(crate) q: u32,
    /// Time, not events, will end `q`.
    pub(crate) by_clock: bool,
}

impl Track {
    pub(crate) fn new(prompt: &Prompt, spaces: &Spaces) -> Self {
        let Prompt { tokens, chains } = prompt;
        Self {
            chains: chains
                .iter()
                .filter_map(|(spec, chain)| Some((spaces.find(spec)?, Arc::clone(chain))))
                .collect(),
            at: None,
            tokens: *tokens,
            predicted: 0,
            reach: 0,
            start: None,
            q: 0,
            by_clock: false,
        }
    }

    /// Starts over on an endpoint that speaks `space` and holds `run` leading blocks.
    pub(crate) fn settle(&mut self, space: Option<SpaceId>, run: u32) {
        self.at = space
            .and_then(|space| self.chains.iter().position(|(known, _)| *known == space))
            .map(|at| at as u8);
        self.predicted = run.min(self.most());
        self.reach = self.predicted;
        self.start = None;
        self.by_clock = false;
    }

    /// The chain for this endpoint, if it has one.
    pub(crate) fn chain(&self) -> Option<&Arc<Chain>> {
        self.at.map(|at| &self.chains[usize::from(at)].1)
    }

    /// Keys in `space`; none if the request has none there.
    pub(crate) fn keys_in(&self, space: Option<SpaceId>) -> &[BlockKey] {
        self.chains
            .iter()
            .find(|(known, _)| Some(*known) == space)
            .map_or(&[], |(_, chain)| &chain.keys)
    }

    pub(crate) fn keys(&self) -> &[BlockKey] {
        self.chain().map_or(&[], |chain| &chain.keys)
    }

    /// First block that is claimed: before its first own event any may be the next that is stored.
    pub(crate) fn low(&self) -> u32 {
        self.start.map_or(0, |_| self.reach)
    }

    /// Full blocks known.
    pub(crate) fn blocks(&self) -> u32 {
        self.keys().len() as u32
    }

    /// b, zero without a chain.
    pub(crate) fn block_tokens(&self) -> u32 {
        self.chain().map_or(0, |chain| chain.block_size.get())
    }

    /// The most blocks that an engine hits: it always computes at least the last token.
    pub(crate) fn most(&self) -> u32 {
        let size = self.block_tokens();
        if size == 0 {
            return 0;
        }
        self.blocks().min(self.tokens.saturating_sub(1) / size)
    }

    /// No block is outstanding whose store would end Q.
    pub(crate) fn is_full_hit(&self) -> bool {
        self.reach >= self.most()
    }

    /// `L − b · reach`.
    pub(crate) fn uncached(&self) -> u32 {
        self.tokens.saturating_sub(self.block_tokens() * self.reach)
    }

    /// Q once the blocks before `reach` are stored: the tail goes with the last full block.
    pub(crate) fn left(&self) -> u32 {
        let size = self.block_tokens();
        let all_known = size > 0 && self.blocks() == self.tokens / size;
        if all_known && self.reach == self.blocks() {
            0
        } else {
            self.uncached()
        }
    }
}

/// One HTTP request that is placed and not finished.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) id: ReservationId,
    /// Whose load it is; nobody's when the gateway sent it to an endpoint that we do not know.
    pub(crate) slot: Option<SourceId>,
    /// Place in the endpoint's list of open reservations.
    pub(crate) position: u32,
    pub(crate) weight: u32,
    pub(crate) tracks: SmallVec<[Track; 1]>,
    pub(crate) picked: Time,
    /// Q over its prompts.
    pub(crate) q: u64,
    pub(crate) estimated: bool,
    /// Q falls by time, not by events.
    pub(crate) by_rate: bool,
    /// An own event was seen.
    pub(crate) started: bool,
    /// Generated output was seen.
    pub(crate) output: bool,
    /// Success or failure was counted.
    pub(crate) judged: bool,
    /// `cached_tokens` said so.
    pub(crate) checked: bool,
    /// What `cached_tokens` said.
    pub(crate) cached: Option<u64>,
    /// When generated output was first seen.
    pub(crate) first_output: Option<Time>,
    /// Output tokens, where they were counted.
    pub(crate) output_tokens: Option<u64>,
    /// The source was live when it was picked, and ever since.
    pub(crate) live: bool,
    /// The endpoint's `strangers` when it was picked.
    pub(crate) strangers: u64,
}

impl Reservation {
    /// Nobody's yet.
    pub(crate) fn new(id: ReservationId, request: &PickRequest<'_>, spaces: &Spaces, now: Time) -> Self {
        Self {
            id,
            slot: None,
            position: 0,
            weight: request.weight.max(1),
            tracks: request
                .prompts
                .iter()
                .map(|prompt| Track::new(prompt, spaces))
                .collect(),
            picked: now,
            q: 0,
            estimated: request.estimated,
            by_rate: false,
            started: false,
            output: false,
            judged: false,
            checked: false,
            cached: None,
            first_output: None,
            output_tokens: None,
            live: false,
            strangers: 0,
        }
    }

    /// No own event and no output yet.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.started && !self.output
    }

    /// Predicted hit over its prompts, tokens.
    pub(crate) fn predicted_tokens(&self) -> u64 {
        self.tracks
            .iter()
            .map(|track| u64::from(track.predicted * track.block_tokens()))
            .sum()
    }

    /// L over its prompts.
    pub(crate) fn tokens(&self) -> u64 {
        self.tracks.iter().map(|track| u64::from(track.tokens)).sum()
    }

    /// Sets Q of one prompt and keeps the sums.
    pub(crate) fn set_q(&mut self, track: usize, q: u32, load: &mut Load) {
        let track = &mut self.tracks[track];
        let (old, new) = (u64::from(track.q), u64::from(q));
        let had = self.q > 0;
        // absurd lengths wrap, and leave as they came
        let pairs = |q: u64| q.wrapping_mul((2 * u64::from(track.tokens)).saturating_sub(q));
        load.pairs = load.pairs.wrapping_sub(pairs(old)).wrapping_add(pairs(new));
        track.q = q;
        self.q = self.q - old + new;
        load.q = load.q - old + new;
        load.passed += old.saturating_sub(new);
        if track.by_clock {
            load.by_clock = load.by_clock - old + new;
        }
        let has = self.q > 0;
        let weight = u64::from(self.weight);
        match (had, has) {
            (false, true) => load.prefilling += weight,
            (true, false) => load.prefilling -= weight,
            _ => {}
        }
    }

    /// Whether time or events end Q of one prompt.
    pub(crate) fn set_by_clock(&mut self, track: usize, by_clock: bool, load: &mut Load) {
        let track = &mut self.tracks[track];
        match (track.by_clock, by_clock) {
            (false, true) => load.by_clock += u64::from(track.q),
            (true, false) => load.by_clock -= u64::from(track.q),
            _ => {}
        }
        track.by_clock = by_clock;
    }
}
