//! INTERFACE SKELETON: the owner of `prefix` replaces the bodies (and splits the file as needed).

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::BlockKey;

/// Dense number of a publisher of KV events; the same number as its endpoint's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u16);

/// Which sources hold which blocks.
#[derive(Debug, Default)]
pub struct PrefixIndex {}

impl PrefixIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }
    /// `source` now holds `key`. True when it did not before.
    pub fn insert(&mut self, source: SourceId, key: BlockKey) -> bool {
        let _ = (source, key);
        unimplemented!()
    }
    /// `source` no longer holds `key`. False (and no change) when it did not.
    pub fn remove(&mut self, source: SourceId, key: BlockKey) -> bool {
        let _ = (source, key);
        unimplemented!()
    }
    /// Forgets all that `source` holds; returns how many blocks that was.
    pub fn clear(&mut self, source: SourceId) -> usize {
        let _ = source;
        unimplemented!()
    }
    /// Whether `source` holds `key`.
    pub fn holds(&self, source: SourceId, key: BlockKey) -> bool {
        let _ = (source, key);
        unimplemented!()
    }
    /// Number of blocks that `source` holds.
    pub fn held_by(&self, source: SourceId) -> usize {
        let _ = source;
        unimplemented!()
    }
    /// Says whether every held block of `source` has its whole chain held (no holes). Only such sources may be
    /// galloped; others are walked block by block. The default for a new source is gapless.
    pub fn set_gapless(&mut self, source: SourceId, gapless: bool) {
        let _ = (source, gapless);
        unimplemented!()
    }
    /// For each candidate the number of leading `keys` that it holds; `runs` is cleared and filled in the
    /// candidates' order. No allocation beyond growing `runs`.
    pub fn longest_runs(&self, keys: &[BlockKey], candidates: &[SourceId], runs: &mut Vec<u32>) {
        let _ = (keys, candidates, runs);
        unimplemented!()
    }
    /// First position at or after `start` whose key `source` does not hold (at most `keys.len()`).
    pub fn run_from(&self, source: SourceId, keys: &[BlockKey], start: usize) -> usize {
        let _ = (source, keys, start);
        unimplemented!()
    }
    /// Distinct blocks known.
    pub fn len(&self) -> usize {
        unimplemented!()
    }
    /// Whether no block is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Heap bytes in use by the index.
    pub fn heap_bytes(&self) -> usize {
        unimplemented!()
    }
}

/// The index as picks (readers) and event application (one short write per batch) share it.
#[derive(Debug, Default)]
pub struct SharedIndex(RwLock<PrefixIndex>);

impl SharedIndex {
    /// For look-ups.
    pub fn read(&self) -> RwLockReadGuard<'_, PrefixIndex> {
        self.0.read()
    }
    /// For applying events; hold it for one bounded run of operations, never across a wait.
    pub fn write(&self) -> RwLockWriteGuard<'_, PrefixIndex> {
        self.0.write()
    }
}
