//! Which node is which key, and what follows what.
//!
//! A key that was made of the key before it and of the block's content says what is before it, so it is looked for
//! among the children of that node: nearly always the one child that the node names. Only first blocks and further
//! children are in a table by key, and the keys of inferences, which come from elsewhere and prove nothing.

use lmetric_prefix::BlockKey;
use smallvec::SmallVec;

use super::{
    ids::Ids,
    nodes::{NodeId, Nodes},
};

#[derive(Debug, Default)]
pub(super) struct Chains {
    pub(super) nodes: Nodes,
    by_key: Ids,
    /// Nodes made by inferences.
    told: usize,
}

impl Chains {
    /// Brings near where these first blocks are.
    pub(super) fn fetch(&self, first: impl Iterator<Item = BlockKey>) {
        let keys: SmallVec<[u64; 64]> = first.map(BlockKey::get).collect();
        self.by_key.fetch(&keys);
    }

    /// The node of `key`, which follows `parent` (none: it is a first block). O(1).
    pub(super) fn child(&self, parent: Option<NodeId>, key: BlockKey) -> Option<NodeId> {
        if let Some(parent) = parent {
            if let Some(child) = self.nodes.child(parent)
                && self.nodes.key(child) == key
            {
                return Some(child);
            }
            if self.told == 0 && self.nodes.counts(parent).branches == 0 {
                return None;
            }
        }
        self.by_key.find(key.get())
    }

    /// How many of `keys`, the first blocks of a prompt, have no node.
    pub(super) fn missing(&self, keys: &[BlockKey]) -> usize {
        let mut last = None;
        for (at, &key) in keys.iter().enumerate() {
            last = self.child(last, key);
            if last.is_none() {
                return keys.len() - at;
            }
        }
        0
    }

    /// Makes the node of `key`, which has none, with so many copies of its own hash. Amortised O(1).
    pub(super) fn add(&mut self, key: BlockKey, parent: Option<NodeId>, copies: u8) -> NodeId {
        let node = self.nodes.add(key, parent, copies);
        if let Some(parent) = parent
            && self.nodes.child(parent).is_none()
        {
            self.nodes.set_child(parent, Some(node));
        } else {
            self.add_by_key(node, key, parent);
        }
        node
    }

    /// The same for a key that somebody says follows the key of `parent`; without a hash.
    pub(super) fn add_told(&mut self, key: BlockKey, parent: Option<NodeId>) -> NodeId {
        let node = self.nodes.add(key, parent, 0);
        self.add_by_key(node, key, parent);
        let mut counts = self.nodes.counts(node);
        counts.told = true;
        self.nodes.set_counts(node, counts);
        self.told += 1;
        node
    }

    fn add_by_key(&mut self, node: NodeId, key: BlockKey, parent: Option<NodeId>) {
        if let Some(parent) = parent {
            let mut counts = self.nodes.counts(parent);
            counts.branches += 1;
            self.nodes.set_counts(parent, counts);
        }
        self.by_key.insert(key.get(), node);
    }

    /// Frees a node that has no children; the node before it. O(1).
    pub(super) fn free(&mut self, node: NodeId) -> Option<NodeId> {
        let parent = self.nodes.parent(node);
        self.unlink(node, parent);
        self.told -= usize::from(self.nodes.counts(node).told);
        self.nodes.free(node);
        parent
    }

    /// Takes `node` out of the children of `parent`.
    fn unlink(&mut self, node: NodeId, parent: Option<NodeId>) {
        if let Some(parent) = parent {
            if self.nodes.child(parent) == Some(node) {
                self.nodes.set_child(parent, None);
                return;
            }
            let mut counts = self.nodes.counts(parent);
            counts.branches -= 1;
            self.nodes.set_counts(parent, counts);
        }
        self.by_key.remove(self.nodes.key(node).get());
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.heap_bytes() + self.by_key.heap_bytes()
    }
}
