//! When an inference runs out.
//!
//! An engine that says "these blocks were cached" has just used them, so they are the last to be evicted; after
//! it has stored as many new blocks as its cache has, they are gone unless they were used again.

use std::collections::VecDeque;

use lmetric_prefix::BlockKey;

/// Ends of inferred chains, in the order in which they run out.
#[derive(Debug, Default)]
pub(super) struct Inferred {
    /// Stores seen so far.
    stored: u64,
    ends: VecDeque<(u64, BlockKey)>,
}

impl Inferred {
    /// Holds `key` until `stores` more blocks were stored.
    pub(super) fn add(&mut self, key: BlockKey, stores: u64) {
        self.ends.push_back((self.stored + stores, key));
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn stored(&mut self) {
        self.stored += 1;
    }

    /// The next one that has run out.
    pub(super) fn expired(&mut self) -> Option<BlockKey> {
        let (at, key) = *self.ends.front()?;
        (at <= self.stored).then(|| {
            self.ends.pop_front();
            key
        })
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
