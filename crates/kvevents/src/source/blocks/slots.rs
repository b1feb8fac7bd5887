//! Which of the engine's hashes leads to which node, in how many copies.
//!
//! A node has room for the copies of one hash of one KV cache group. A second hash of the same key and those of further
//! groups are kept beside.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{
    EngineHash, Removal,
    ids::Ids,
    nodes::{Counts, NodeId, Nodes},
};

/// A hash that its node has no room for.
#[derive(Clone, Copy, Debug)]
struct Other {
    hash: EngineHash,
    node: NodeId,
    copies: u16,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Nodes by the hash whose copies they count.
    own: Ids,
    /// Group of those hashes: the first that was seen.
    group: Option<u16>,
    others: HashTable<Other>,
    /// Hashes with more than one copy.
    copied: usize,
    hasher: DefaultHashBuilder,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.own.len() + self.others.len()
    }

    /// Brings near where these hashes are.
    pub(super) fn fetch(&self, hashes: &[u64]) {
        self.own.fetch(hashes);
    }

    /// Where `hash` leads. O(1).
    pub(super) fn find(&self, hash: EngineHash) -> Option<NodeId> {
        if let Some(node) = self.own(hash) {
            return Some(node);
        }
        if self.others.is_empty() {
            return None;
        }
        let code = self.hasher.hash_one(hash);
        let found = self.others.find(code, |other| other.hash == hash)?;
        Some(found.node)
    }

    fn own(&self, hash: EngineHash) -> Option<NodeId> {
        if self.group != Some(hash.group) {
            return None;
        }
        self.own.find(hash.hash)
    }

    /// Whether hashes of this group are kept in nodes.
    pub(super) fn is_own(&mut self, group: u16) -> bool {
        *self.group.get_or_insert(group) == group
    }

    /// Makes `hash`, which leads nowhere yet and whose group is kept in nodes, lead to `node`, which was made with so
    /// many copies of it. Amortised O(1).
    pub(super) fn add_own(&mut self, hash: u64, node: NodeId, copies: u16) {
        self.copied += usize::from(copies > 1);
        self.own.insert(hash, node);
    }

    /// Makes `hash`, which leads nowhere yet, lead to `node`. Amortised O(1).
    pub(super) fn add(&mut self, nodes: &mut Nodes, hash: EngineHash, node: NodeId, copies: u16) {
        let mut counts = nodes.counts(node);
        if counts.copies == 0 && self.is_own(hash.group) {
            counts.copies = copies;
            self.add_own(hash.hash, node, copies);
        } else {
            counts.others += 1;
            self.copied += usize::from(copies > 1);
            let (hasher, other) = (&self.hasher, Other { hash, node, copies });
            self.others
                .insert_unique(hasher.hash_one(hash), other, |other| hasher.hash_one(other.hash));
        }
        nodes.set_counts(node, counts);
    }

    /// One more copy of `hash`, which leads to `node`.
    pub(super) fn add_copy(&mut self, nodes: &mut Nodes, hash: EngineHash, node: NodeId) {
        let mut counts = nodes.counts(node);
        // what is not beside is the node's own
        let other = if counts.others == 0 {
            None
        } else {
            let code = self.hasher.hash_one(hash);
            self.others.find_mut(code, |other| other.hash == hash)
        };
        if let Some(other) = other {
            self.copied += usize::from(other.copies == 1);
            other.copies = other.copies.saturating_add(1);
        } else {
            self.copied += usize::from(counts.copies == 1);
            counts.copies = counts.copies.saturating_add(1);
            nodes.set_counts(node, counts);
        }
    }

    /// Takes a copy of `hash` away. When it was the last one: where it led, with one slot less in its counts.
    pub(super) fn take_copy(
        &mut self,
        nodes: &mut Nodes,
        hash: EngineHash,
    ) -> Result<(NodeId, Counts), Removal> {
        if let Some(node) = self.own(hash) {
            let mut counts = nodes.counts(node);
            counts.copies -= 1;
            self.copied -= usize::from(counts.copies == 1);
            nodes.set_counts(node, counts);
            if counts.copies > 0 {
                return Err(Removal::Copy);
            }
            self.own.remove(hash.hash);
            return Ok((node, counts));
        }
        if self.others.is_empty() {
            return Err(Removal::Unknown);
        }
        let code = self.hasher.hash_one(hash);
        let found = self.others.find_entry(code, |other| other.hash == hash);
        let mut entry = found.map_err(|_| Removal::Unknown)?;
        let other = entry.get_mut();
        if other.copies > 1 {
            other.copies -= 1;
            self.copied -= usize::from(other.copies == 1);
            return Err(Removal::Copy);
        }
        let node = other.node;
        entry.remove();
        let mut counts = nodes.counts(node);
        counts.others -= 1;
        nodes.set_counts(node, counts);
        Ok((node, counts))
    }

    /// Sets every count of copies to one; how many were more.
    pub(super) fn forget_copies(&mut self, nodes: &mut Nodes) -> usize {
        if self.copied > 0 {
            nodes.forget_copies();
            for other in &mut self.others {
                other.copies = 1;
            }
        }
        std::mem::take(&mut self.copied)
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.own.heap_bytes() + self.others.allocation_size()
    }
}
