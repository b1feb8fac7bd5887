//! The index as many threads share it.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{PrefixIndex, SourceId};

/// Slots visited under one hold of the write lock while a source is cleared: some ten microseconds.
const CLEAR_STEP: usize = 4_096;

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

    /// Forgets all that `source` holds, letting others in between short steps. Look-ups stop seeing the
    /// source at once. Returns how many blocks it held.
    pub fn clear(&self, source: SourceId) -> usize {
        let before = self.read().held_by(source);
        while !self.write().clear_step(source, CLEAR_STEP) {}
        before
    }
}
