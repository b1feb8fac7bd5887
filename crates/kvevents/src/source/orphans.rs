//! Blocks whose parent is unknown. They wait, oldest first out, until the parent shows up.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use lmetric_prefix::ContentHash;

use super::blocks::EngineHash;

const NONE: u32 = u32::MAX;

/// A block without a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub(super) hash: EngineHash,
    /// Engine hash of the block before it, in the same group.
    pub(super) parent: u64,
    pub(super) content: ContentHash,
    pub(super) copies: u16,
    /// Number of the batch that announced it last.
    pub(super) batch: u64,
}

impl Orphan {
    fn awaited(&self) -> EngineHash {
        EngineHash {
            hash: self.parent,
            group: self.hash.group,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    orphan: Orphan,
    older: u32,
    newer: u32,
    /// Others that wait for the same parent.
    previous: u32,
    next: u32,
}

#[derive(Debug)]
pub(super) struct Orphans {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_hash: HashTable<u32>,
    /// The first of those that wait for one parent.
    by_parent: HashTable<u32>,
    oldest: u32,
    newest: u32,
    hasher: DefaultHashBuilder,
}

impl Default for Orphans {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_hash: HashTable::new(),
            by_parent: HashTable::new(),
            oldest: NONE,
            newest: NONE,
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl Orphans {
    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    pub(super) fn get(&self, hash: EngineHash) -> Option<&Orphan> {
        self.position(hash).map(|at| &self.entries[at as usize].orphan)
    }

    /// One more copy, announced by `batch`; false when `hash` is no orphan.
    pub(super) fn add_copy(&mut self, hash: EngineHash, batch: u64) -> bool {
        let Some(at) = self.position(hash) else {
            return false;
        };
        let orphan = &mut self.entries[at as usize].orphan;
        orphan.copies = orphan.copies.saturating_add(1);
        orphan.batch = batch;
        true
    }

    /// Adds an orphan whose hash is not there yet.
    pub(super) fn add(&mut self, orphan: Orphan) {
        let at = self.free.pop().unwrap_or(self.entries.len() as u32);
        let next = self.waiting(orphan.awaited()).unwrap_or(NONE);
        let entry = Entry {
            orphan,
            older: self.newest,
            newer: NONE,
            previous: NONE,
            next,
        };
        match self.entries.get_mut(at as usize) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        if self.newest == NONE {
            self.oldest = at;
        } else {
            self.entries[self.newest as usize].newer = at;
        }
        self.newest = at;
        if next == NONE {
            self.head_changed(orphan.awaited(), None, Some(at));
        } else {
            self.entries[next as usize].previous = at;
            self.head_changed(orphan.awaited(), Some(next), Some(at));
        }
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_hash
            .insert_unique(hasher.hash_one(orphan.hash), at, |&other| {
                hasher.hash_one(entries[other as usize].orphan.hash)
            });
    }

    /// A copy of `hash` is gone; false when it is no orphan.
    pub(super) fn remove_copy(&mut self, hash: EngineHash) -> bool {
        let Some(at) = self.position(hash) else {
            return false;
        };
        let orphan = &mut self.entries[at as usize].orphan;
        if orphan.copies > 1 {
            orphan.copies -= 1;
        } else {
            self.unlink(at);
        }
        true
    }

    pub(super) fn take(&mut self, hash: EngineHash) -> Option<Orphan> {
        let at = self.position(hash)?;
        self.unlink(at);
        Some(self.entries[at as usize].orphan)
    }

    /// One of those that wait for `parent`, taken out.
    pub(super) fn take_child(&mut self, parent: EngineHash) -> Option<Orphan> {
        let at = self.waiting(parent)?;
        self.unlink(at);
        Some(self.entries[at as usize].orphan)
    }

    /// Drops the one that has waited longest; false when there is none.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let any = self.oldest != NONE;
        if any {
            self.unlink(self.oldest);
        }
        any
    }

    fn position(&self, hash: EngineHash) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.by_hash
            .find(self.hasher.hash_one(hash), |&at| {
                self.entries[at as usize].orphan.hash == hash
            })
            .copied()
    }

    fn waiting(&self, parent: EngineHash) -> Option<u32> {
        self.by_parent
            .find(self.hasher.hash_one(parent), |&at| {
                self.entries[at as usize].orphan.awaited() == parent
            })
            .copied()
    }

    /// The list of those that wait for `parent` begins elsewhere now.
    fn head_changed(&mut self, parent: EngineHash, old: Option<u32>, new: Option<u32>) {
        let code = self.hasher.hash_one(parent);
        if let Some(old) = old
            && let Ok(entry) = self.by_parent.find_entry(code, |&at| at == old)
        {
            entry.remove();
        }
        if let Some(new) = new {
            let (entries, hasher) = (&self.entries, &self.hasher);
            self.by_parent.insert_unique(code, new, |&at| {
                hasher.hash_one(entries[at as usize].orphan.awaited())
            });
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry {
            orphan,
            older,
            newer,
            previous,
            next,
        } = self.entries[at as usize];
        let code = self.hasher.hash_one(orphan.hash);
        if let Ok(entry) = self.by_hash.find_entry(code, |&other| other == at) {
            entry.remove();
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous == NONE {
            self.head_changed(orphan.awaited(), Some(at), (next != NONE).then_some(next));
        } else {
            self.entries[previous as usize].next = next;
        }
        self.free.push(at);
    }
}
