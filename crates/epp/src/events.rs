//! Applies KV events: first the index, then the scheduler, so that a pick that no longer sees a block in the
//! overlay sees it in the index.
//!
//! The index's write lock is held for at most [`RUN`] operations at a time and never together with the
//! scheduler's own lock.

use std::sync::Arc;

use lmetric_kvevents::{Adoption, EventSink, Op, SourceState};
use lmetric_prefix::{BlockKey, ContentHash, SharedIndex, SourceId};
use lmetric_scheduler::{Computed, EndpointId, Scheduler};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::clock::Clock;

/// Most operations for one hold of the index's write lock; picks wait no longer than for these.
const RUN: usize = 64;

/// The picker's [`EventSink`].
pub struct IndexSink {
    index: Arc<SharedIndex>,
    scheduler: Arc<Scheduler>,
    clock: Clock,
    slots: Mutex<Vec<Option<Slot>>>,
}

/// Blocks computed alike, in order as (parent, key).
type Part<'a> = (Computed, &'a [(BlockKey, BlockKey)]);

/// Blocks of a run for the scheduler, in order as (parent, key).
#[derive(Default)]
struct Told {
    blocks: SmallVec<[(BlockKey, BlockKey); RUN]>,
    /// Lengths of their parts.
    lengths: SmallVec<[(Computed, usize); 4]>,
}

impl Told {
    fn clear(&mut self) {
        self.blocks.clear();
        self.lengths.clear();
    }

    fn push(&mut self, computed: Computed, block: (BlockKey, BlockKey)) {
        self.blocks.push(block);
        match self.lengths.last_mut() {
            Some((last, length)) if *last == computed => *length += 1,
            _ => self.lengths.push((computed, 1)),
        }
    }

    fn parts(&self) -> SmallVec<[Part<'_>; 4]> {
        let mut rest = &self.blocks[..];
        let part = |(computed, length): &(Computed, usize)| {
            let (part, later) = rest.split_at(*length);
            rest = later;
            (*computed, part)
        };
        self.lengths.iter().map(part).collect()
    }
}

/// Who has a slot, and whether the ledger may believe its events.
#[derive(Clone, Copy, Debug)]
struct Slot {
    endpoint: EndpointId,
    current: bool,
    caching: bool,
}

impl IndexSink {
    /// A sink for the index and scheduler.
    pub fn new(index: Arc<SharedIndex>, scheduler: Arc<Scheduler>, clock: Clock) -> Self {
        Self {
            index,
            scheduler,
            clock,
            slots: Mutex::default(),
        }
    }

    /// `endpoint` has its slot from here on; its events are not believed before its source says that it is
    /// live or partial.
    pub fn admit(&self, endpoint: EndpointId) {
        let mut slots = self.slots.lock();
        let at = usize::from(endpoint.slot.0);
        if slots.len() <= at {
            slots.resize(at + 1, None);
        }
        slots[at] = Some(Slot {
            endpoint,
            current: false,
            caching: true,
        });
    }

    /// The endpoint is gone: late news of its source moves nobody's ledger.
    pub fn dismiss(&self, endpoint: EndpointId) {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get_mut(usize::from(endpoint.slot.0))
            && slot.is_some_and(|slot| slot.endpoint == endpoint)
        {
            *slot = None;
        }
    }

    /// The engine caches prefixes, or not; without caching it publishes nothing to follow a prefill by.
    pub fn set_caching(&self, endpoint: EndpointId, caching: bool) {
        self.update(endpoint.slot, |slot| slot.caching = caching);
    }

    /// Forgets all that the slot held.
    pub fn clear(&self, slot: SourceId) {
        self.index.write().clear(slot);
    }

    /// The slots' lock is held while the scheduler is told, so that two changes arrive in their order.
    fn update(&self, source: SourceId, change: impl FnOnce(&mut Slot)) {
        let mut slots = self.slots.lock();
        let Some(Some(slot)) = slots.get_mut(usize::from(source.0)) else {
            return;
        };
        let before = slot.current && slot.caching;
        change(slot);
        let live = slot.current && slot.caching;
        if live != before {
            self.scheduler
                .set_source_live(slot.endpoint, live, self.clock.now());
        }
    }
}

impl EventSink for IndexSink {
    fn apply(&self, source: SourceId, ops: &[Op]) {
        let mut told = Told::default();
        for run in ops.chunks(RUN) {
            told.clear();
            self.index.read().fetch(run.iter().filter_map(Op::key));
            {
                let mut index = self.index.write();
                for op in run {
                    match *op {
                        Op::Store { parent, key } => {
                            index.insert(source, key);
                            told.push(Computed::Now, (parent, key));
                        }
                        Op::Adopt { parent, key } => {
                            index.insert(source, key);
                            told.push(Computed::Earlier, (parent, key));
                        }
                        Op::Infer { key } => {
                            index.insert(source, key);
                        }
                        Op::Remove { key } => {
                            index.remove(source, key);
                        }
                        Op::Clear => {
                            index.clear(source);
                        }
                        Op::Gapless(gapless) => index.set_gapless(source, gapless),
                    }
                }
            }
            if !told.blocks.is_empty() {
                self.scheduler.announced(source, &told.parts(), self.clock.now());
            }
        }
    }

    fn state_changed(&self, source: SourceId, state: SourceState) {
        let current = matches!(state, SourceState::Live | SourceState::Partial);
        self.update(source, |slot| slot.current = current);
    }

    fn adopt(&self, source: SourceId, contents: &[ContentHash]) -> Option<Adoption> {
        let (parent, prefix) = self.scheduler.find_contents(source, contents)?;
        Some(Adoption { parent, prefix })
    }
}
