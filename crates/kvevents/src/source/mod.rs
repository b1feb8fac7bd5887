//! One publisher of KV events, as a pure state machine: messages and connection events in, operations on the
//! index and commands for the transport out.

mod apply;
mod blocks;
mod inferred;
mod orphans;
mod queue;
mod reports;
mod sequence;
mod space;
mod stats;
#[cfg(test)]
mod tests;
mod tiers;

use std::sync::Arc;

use lmetric_prefix::{BlockKey, BlockSize, ContentHash, KeySeed};
use sequence::{Sequence, Verdict};
pub use stats::SourceStats;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Adoption, Op, SourceState};
use apply::Cache;

/// What a source's keys are made of, and its bounds.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Tokenizer group of the key space.
    pub group: Arc<str>,
    /// Seed of all keys.
    pub seed: KeySeed,
    /// Data-parallel rank expected in the batches; others' batches are skipped.
    pub rank: Option<u16>,
    /// Whether the engine offers replays.
    pub replay: bool,
    /// Blocks of the GPU cache; twice as many entries are kept at most (and never more than 2²⁴ − 1), and four times as
    /// many of each other medium.
    pub gpu_blocks: u32,
}

/// One subscription. Messages that belong to an earlier one are not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

/// One replay. Messages that belong to an earlier one are not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayId(u64);

/// What the transport must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Drop the subscription and make a new one.
    Resubscribe,
    /// Ask for everything from a sequence number on; a replay that still runs is void.
    Replay {
        /// First number wanted.
        from: u64,
        /// To be given with each of its messages.
        id: ReplayId,
    },
}

/// What a step came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For the index, in order.
    pub ops: Vec<Op>,
    /// For the transport.
    pub command: Option<Command>,
}

/// Looks for an open reservation with these contents: see [`crate::EventSink::adopt`].
pub type Adopt<'a> = dyn FnMut(&[ContentHash]) -> Option<Adoption> + 'a;

/// The state machine of one source.
#[derive(Debug)]
pub struct Source {
    replay: bool,
    sequence: Sequence,
    cache: Cache,
    generation: u64,
    replay_id: u64,
    replays: u64,
    fenced: u64,
    clears: u64,
    restarts: u64,
}

impl Source {
    /// A source that is not connected and holds nothing.
    pub fn new(config: SourceConfig) -> Self {
        Self {
            replay: config.replay,
            sequence: Sequence::new(config.replay),
            cache: Cache::new(config),
            generation: 0,
            replay_id: 0,
            replays: 0,
            fenced: 0,
            clears: 0,
            restarts: 0,
        }
    }

    /// The subscription is up. With a replay endpoint everything is asked for again from the start, or, after
    /// a reconnection, from the last message applied, which shows whether the engine is still the same.
    pub fn connected(&mut self, out: &mut Outcome) -> Generation {
        self.generation += 1;
        if self.sequence.connected() {
            self.ask(out);
        }
        Generation(self.generation)
    }

    /// The subscription is gone. What is held stays until the next one tells.
    pub fn disconnected(&mut self, generation: Generation) {
        if generation.0 == self.generation {
            self.generation += 1;
            self.replay_id += 1;
            self.sequence.disconnected();
        }
    }

    /// A live message came.
    pub fn live(
        &mut self,
        generation: Generation,
        seq: u64,
        payload: &[u8],
        adopt: &mut Adopt<'_>,
        out: &mut Outcome,
    ) {
        if generation.0 != self.generation {
            self.fenced += 1;
            return;
        }
        let verdict = self.sequence.live(seq, payload);
        self.obey(verdict, seq, payload, adopt, out);
    }

    /// A message of the replay came.
    pub fn replayed(
        &mut self,
        id: ReplayId,
        seq: u64,
        payload: &[u8],
        adopt: &mut Adopt<'_>,
        out: &mut Outcome,
    ) {
        if id.0 != self.replay_id {
            self.fenced += 1;
            return;
        }
        let verdict = self.sequence.replayed(seq, xxh3_64(payload));
        self.obey(verdict, seq, payload, adopt, out);
    }

    /// Something came that is no message.
    pub fn malformed(&mut self) {
        self.cache.malformed();
    }

    /// The replay came to its end.
    pub fn replay_ended(&mut self, id: ReplayId, adopt: &mut Adopt<'_>, out: &mut Outcome) {
        if id.0 == self.replay_id {
            self.replay_id += 1;
            match self.sequence.replay_ended() {
                Verdict::Restarted => self.restart(out),
                _ => self.apply_kept(adopt, out),
            }
        }
    }

    /// The replay could not be had, or broke off.
    pub fn replay_failed(&mut self, id: ReplayId, adopt: &mut Adopt<'_>, out: &mut Outcome) {
        if id.0 == self.replay_id {
            self.replay_id += 1;
            self.sequence.replay_failed();
            self.apply_kept(adopt, out);
        }
    }

    /// Nothing was heard for a while: ask the engine whether it is still the same, if it offers replays.
    pub fn probe(&mut self, out: &mut Outcome) {
        if self.sequence.probe() {
            self.ask(out);
        }
    }

    /// The engine restarted, says someone who knows: forget everything and subscribe again.
    pub fn restarted(&mut self, out: &mut Outcome) {
        self.restart(out);
    }

    /// `num_gpu_blocks` became known.
    pub fn set_blocks(&mut self, gpu_blocks: u32) {
        self.cache.set_blocks(gpu_blocks);
    }

    /// These leading keys of a finished prompt are held, says the engine (`cached_tokens`).
    pub fn infer(&mut self, keys: &[BlockKey], out: &mut Outcome) {
        self.cache.infer(keys, &mut out.ops);
    }

    /// A request that asks for `kv_cache_report_mode` goes to the engine: its re-stores add no reference.
    pub fn expect_report(&mut self, keys: Vec<BlockKey>) {
        self.cache.expect_report(keys);
    }

    /// How much the stream can be trusted now.
    pub fn state(&self) -> SourceState {
        if self.sequence.is_down() {
            SourceState::Down
        } else if self.sequence.is_repairing() {
            SourceState::Stale
        } else if self.sequence.is_partial() || self.cache.is_degraded() {
            SourceState::Partial
        } else {
            SourceState::Live
        }
    }

    /// Counters now.
    pub fn stats(&self) -> SourceStats {
        SourceStats {
            gaps: self.sequence.gaps(),
            replays: self.replays,
            fenced: self.fenced,
            clears: self.clears,
            restarts: self.restarts,
            last_seq: self.sequence.last_seq(),
            ..self.cache.stats()
        }
    }

    /// Tokens per block, once an event said so.
    pub fn block_size(&self) -> Option<BlockSize> {
        self.cache.block_size()
    }

    fn ask(&mut self, out: &mut Outcome) {
        self.replay_id += 1;
        self.replays += 1;
        out.command = Some(Command::Replay {
            from: self.sequence.replay_from(),
            id: ReplayId(self.replay_id),
        });
    }

    fn restart(&mut self, out: &mut Outcome) {
        self.restarts += 1;
        self.clear(&mut out.ops);
        self.sequence.restarted();
        self.generation += 1;
        self.replay_id += 1;
        out.command = Some(Command::Resubscribe);
    }

    fn clear(&mut self, ops: &mut Vec<Op>) {
        self.clears += 1;
        self.cache.clear(ops);
    }

    fn obey(&mut self, verdict: Verdict, seq: u64, payload: &[u8], adopt: &mut Adopt<'_>, out: &mut Outcome) {
        match verdict {
            Verdict::Drop => {}
            Verdict::Apply => self.apply(seq, payload, adopt, out),
            Verdict::ClearAndApply => {
                self.clear(&mut out.ops);
                self.apply(seq, payload, adopt, out);
            }
            Verdict::RestartedHere => {
                self.restarts += 1;
                self.clear(&mut out.ops);
                self.apply(seq, payload, adopt, out);
            }
            Verdict::Restarted => self.restart(out),
            Verdict::Replay => self.ask(out),
        }
    }

    fn apply_kept(&mut self, adopt: &mut Adopt<'_>, out: &mut Outcome) {
        while let Some((seq, payload, verdict)) = self.sequence.kept() {
            self.obey(verdict, seq, &payload, adopt, out);
        }
    }

    fn apply(&mut self, seq: u64, payload: &[u8], adopt: &mut Adopt<'_>, out: &mut Outcome) {
        // only a source that can be asked again has a use for it
        let hash = if self.replay { xxh3_64(payload) } else { 0 };
        self.sequence.applied(seq, hash);
        let applied = self.cache.apply(payload, adopt, &mut out.ops);
        self.clears += applied.clears;
        if applied.clears > 0 {
            self.sequence.set_partial(false);
        }
        if applied.broken {
            self.sequence.set_partial(true);
        }
    }
}
