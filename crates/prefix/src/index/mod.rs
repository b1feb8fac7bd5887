//! Which sources hold which blocks.

mod arena;
mod holders;
mod runs;
mod shared;
mod table;
#[cfg(test)]
mod tests;

use arena::{Arena, place};
use holders::Holders;
pub use shared::SharedIndex;
use table::{Moved, SHARD_BITS, Slot, Table, mix};

use crate::BlockKey;

const SHARDS: usize = 1 << SHARD_BITS;

/// Dense number of a publisher of KV events; the same number as its endpoint's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u16);

/// What is known of one source.
#[derive(Clone, Copy, Debug)]
struct Source {
    held: u32,
    gapless: bool,
    /// Being cleared: look-ups do not see it.
    masked: bool,
}

const UNKNOWN: Source = Source {
    held: 0,
    gapless: true,
    masked: false,
};

/// How far the clearing of a source has come. Tables are swept from the last slot to the first.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    source: SourceId,
    shard: usize,
    /// Slots of that shard still to visit, from the front.
    left: usize,
}

/// Which sources hold which blocks.
///
/// A flat table in 256 shards (a shard grows alone, so that no single insertion copies the whole),
/// 16 bytes a slot: the key and its holders, up to four of them inline, more in an arena of bitmaps;
/// some 21 bytes a block at any size.
/// Nothing is allocated per block.
#[derive(Debug)]
pub struct PrefixIndex {
    shards: Vec<Table>,
    arena: Arena,
    sources: Vec<Source>,
    sweeps: Vec<Sweep>,
    blocks: usize,
}

impl Default for PrefixIndex {
    fn default() -> Self {
        Self {
            shards: std::iter::repeat_with(Table::default).take(SHARDS).collect(),
            arena: Arena::new(),
            sources: Vec::new(),
            sweeps: Vec::new(),
            blocks: 0,
        }
    }
}

/// The key mixed, and the shard where that is kept.
fn place_of(key: BlockKey) -> (u64, usize) {
    let mixed = mix(key.get());
    (mixed, (mixed >> (64 - SHARD_BITS)) as usize)
}

impl PrefixIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// `source` now holds `key`. True when it did not before. Amortised O(1); the clearing of a source
    /// that was only begun is finished first.
    pub fn insert(&mut self, source: SourceId, key: BlockKey) -> bool {
        if self.source_mut(source).masked {
            self.clear(source);
        }
        let (mixed, shard) = place_of(key);
        let table = &mut self.shards[shard];
        match table.find(mixed) {
            Ok(at) => {
                let holders = table.holders_mut(at);
                match holders.with(source, &mut self.arena) {
                    Some(more) => *holders = more,
                    None => return false,
                }
            }
            Err(at) => {
                let holders = Holders::one(source);
                let moved = table.add(at, Slot { mixed, holders }, shard);
                self.blocks += 1;
                self.mend_sweeps(shard, moved);
            }
        }
        self.sources[usize::from(source.0)].held += 1;
        true
    }

    /// Reads where each of `keys` belongs, so that inserting or removing them one by one does not wait for memory each
    /// time. Changes nothing.
    pub fn fetch(&self, keys: impl Iterator<Item = BlockKey>) {
        let read = keys.fold(0, |read, key| {
            let (mixed, shard) = place_of(key);
            read ^ self.shards[shard].fetch(mixed)
        });
        std::hint::black_box(read);
    }

    /// `source` no longer holds `key`. False (and no change) when it did not. O(1).
    pub fn remove(&mut self, source: SourceId, key: BlockKey) -> bool {
        if self.source(source).masked {
            return false;
        }
        let (mixed, shard) = place_of(key);
        match self.shards[shard].find(mixed) {
            Ok(at) => self.drop_holder(source, shard, at),
            Err(_) => false,
        }
    }

    /// Forgets all that `source` holds; returns how many blocks that was. O(size of the index): while
    /// look-ups go on, use [`SharedIndex::clear`].
    pub fn clear(&mut self, source: SourceId) -> usize {
        let before = self.source(source).held as usize;
        while !self.clear_step(source, usize::MAX) {}
        before
    }

    /// One step of forgetting all that `source` holds, of at most `budget` slots. From the first step
    /// on no look-up sees the source. True when nothing is left; the source is then gapless and new.
    pub fn clear_step(&mut self, source: SourceId, budget: usize) -> bool {
        if self.source(source).held == 0 {
            self.sweeps.retain(|sweep| sweep.source != source);
            if let Some(known) = self.sources.get_mut(usize::from(source.0)) {
                *known = UNKNOWN;
            }
            return true;
        }
        self.source_mut(source).masked = true;
        let mut sweep = match self.sweeps.iter().position(|sweep| sweep.source == source) {
            Some(at) => self.sweeps.swap_remove(at),
            None => Sweep {
                source,
                shard: 0,
                left: self.shards[0].extent(),
            },
        };
        let mut budget = budget.max(1);
        while budget > 0 && self.source(source).held > 0 {
            if sweep.left == 0 {
                if self.shards[sweep.shard].shrink() {
                    self.mend_sweeps(sweep.shard, Moved::All);
                }
                // a source that still holds blocks holds them in a shard that was not visited yet
                sweep.shard = (sweep.shard + 1) % SHARDS;
                sweep.left = self.shards[sweep.shard].extent();
                budget -= 1;
                continue;
            }
            sweep.left -= 1;
            budget -= 1;
            let at = sweep.left;
            if self.shards[sweep.shard]
                .slot(at)
                .holders
                .contains(source, &self.arena)
            {
                self.drop_holder(source, sweep.shard, at);
            }
        }
        self.sweeps.push(sweep);
        self.source(source).held == 0 && self.clear_step(source, 1)
    }

    /// Whether `source` holds `key`. O(1).
    pub fn holds(&self, source: SourceId, key: BlockKey) -> bool {
        !self.source(source).masked && self.holders(key).contains(source, &self.arena)
    }

    /// Number of blocks that `source` holds.
    pub fn held_by(&self, source: SourceId) -> usize {
        let known = self.source(source);
        if known.masked { 0 } else { known.held as usize }
    }

    /// Says whether every held block of `source` has its whole chain held (no holes). Only such sources may be
    /// galloped; others are walked block by block. The default for a new source is gapless.
    pub fn set_gapless(&mut self, source: SourceId, gapless: bool) {
        if self.source(source).masked {
            self.clear(source);
        }
        self.source_mut(source).gapless = gapless;
    }

    /// Distinct blocks known.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Whether no block is known.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Heap bytes in use by the index.
    pub fn heap_bytes(&self) -> usize {
        self.shards.iter().map(Table::heap_bytes).sum::<usize>()
            + self.shards.capacity() * size_of::<Table>()
            + self.arena.heap_bytes()
            + self.sources.capacity() * size_of::<Source>()
            + self.sweeps.capacity() * size_of::<Sweep>()
    }

    fn holders(&self, key: BlockKey) -> Holders {
        let (mixed, shard) = place_of(key);
        self.shards[shard].get(mixed)
    }

    fn source(&self, source: SourceId) -> Source {
        self.sources
            .get(usize::from(source.0))
            .copied()
            .unwrap_or(UNKNOWN)
    }

    fn source_mut(&mut self, source: SourceId) -> &mut Source {
        let at = usize::from(source.0);
        if at >= self.sources.len() {
            self.sources.resize(at + 1, UNKNOWN);
            self.arena.reserve_id(source);
        }
        &mut self.sources[at]
    }

    fn drop_holder(&mut self, source: SourceId, shard: usize, at: usize) -> bool {
        let table = &mut self.shards[shard];
        let holders = table.holders_mut(at);
        let Some(fewer) = holders.without(source, &mut self.arena) else {
            return false;
        };
        if fewer.is_nobody() {
            table.remove_at(at);
            self.blocks -= 1;
        } else {
            *holders = fewer;
        }
        self.source_mut(source).held -= 1;
        true
    }

    /// Slots of `shard` moved: whoever sweeps it must miss none.
    fn mend_sweeps(&mut self, shard: usize, moved: Moved) {
        let extent = self.shards[shard].extent();
        for sweep in self.sweeps.iter_mut().filter(|sweep| sweep.shard == shard) {
            match moved {
                Moved::All => sweep.left = extent,
                // the one before the sweep went past it
                Moved::Up(from, to) if from < sweep.left && sweep.left <= to => sweep.left += 1,
                Moved::Up(..) => {}
            }
        }
    }
}
