//! The blocks that one source holds: engine hash → block, and the chains that blocks form.
//!
//! A *slot* is one engine hash in one KV cache group, with the number of its copies. A *node* is one of our keys;
//! usually one slot leads to it, none when it is held by inference or when only its children are left (a *ghost*: a
//! hole in a chain). A node whose last child goes and that nobody holds goes too.
//!
//! What nearly every node has is in the node: one slot of the source's first group, one child. A key is looked for
//! among the children of the node before it, for it says what that is; so only first blocks and later children are
//! in a table by key.

mod ids;
mod nodes;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use lmetric_prefix::{BlockKey, ContentHash};

use crate::Op;
use ids::Ids;
pub(super) use nodes::NodeId;
use nodes::{Counts, Nodes};

/// An engine's hash within one of its KV cache groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct EngineHash {
    pub(super) hash: u64,
    pub(super) group: u16,
}

/// What a block follows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    /// Nothing: it is the first of its prompt. The key is the root of its key space.
    Root(BlockKey),
    Node(NodeId),
}

impl Before {
    fn node(self) -> Option<NodeId> {
        match self {
            Self::Root(_) => None,
            Self::Node(node) => Some(node),
        }
    }
}

/// Why a block became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The engine computed it.
    Computed,
    /// The engine computed it some time ago.
    Earlier,
    /// The engine only told us that it has it.
    Reported,
}

impl Cause {
    fn op(self, parent: BlockKey, key: BlockKey) -> Op {
        match self {
            Self::Computed => Op::Store { parent, key },
            Self::Earlier => Op::Adopt { parent, key },
            Self::Reported => Op::Infer { key },
        }
    }
}

/// A slot that its node has no room for: a second hash of one key, or one of another group.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: EngineHash,
    node: NodeId,
    copies: u16,
}

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// No such block.
    Unknown,
    /// A copy went; others are left.
    Copy,
    /// The last copy went.
    Last,
}

/// Spreads hashes and keys over 64 bits, by a number of this source's own: an engine's tenants may choose hashes.
#[derive(Clone, Copy, Debug)]
struct Codes(u64);

impl Codes {
    fn of(self, number: u64) -> u64 {
        let product = u128::from(number ^ self.0) * 0xA076_1D64_78BD_642F;
        (product >> 64) as u64 ^ product as u64
    }
}

#[derive(Debug)]
pub(super) struct Blocks {
    nodes: Nodes,
    /// Nodes with a slot of their own, by its hash.
    by_hash: Ids,
    /// First blocks, and children that the node before them does not name, by key.
    by_key: Ids,
    /// Slots of nodes that have no room for them.
    others: HashTable<Slot>,
    /// Nodes with pins.
    pinned: HashMap<BlockKey, NodeId>,
    /// Group of the slots that nodes have room for: the first that was seen.
    group: Option<u16>,
    /// Nodes that no slot leads to.
    unslotted: usize,
    /// Nodes that nobody holds and whose children keep them.
    ghosts: usize,
    /// Slots with more than one copy.
    copied: usize,
    /// What the index was told last.
    told_holes: bool,
    codes: Codes,
    hasher: DefaultHashBuilder,
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            nodes: Nodes::default(),
            by_hash: Ids::default(),
            by_key: Ids::default(),
            others: HashTable::new(),
            pinned: HashMap::new(),
            group: None,
            unslotted: 0,
            ghosts: 0,
            copied: 0,
            told_holes: false,
            codes: Codes(RandomState::new().hash_one(0)),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl Blocks {
    /// Most entries there can be.
    pub(super) const MOST: usize = NodeId::MOST;

    /// Entries that count against the source's bound.
    pub(super) fn used(&self) -> usize {
        self.by_hash.len() + self.others.len() + self.unslotted
    }

    /// Blocks that the index knows as held.
    pub(super) fn held(&self) -> usize {
        self.nodes.len() - self.ghosts
    }

    pub(super) fn key(&self, node: NodeId) -> BlockKey {
        self.nodes.key(node)
    }

    /// Key of the block before `node`; `root` for a first block.
    pub(super) fn key_before(&self, node: NodeId, root: BlockKey) -> BlockKey {
        self.nodes.parent(node).map_or(root, |parent| self.key(parent))
    }

    fn key_of(&self, before: Before) -> BlockKey {
        match before {
            Before::Root(root) => root,
            Before::Node(node) => self.key(node),
        }
    }

    /// The block that the engine knows by `hash`.
    pub(super) fn find(&self, hash: EngineHash) -> Option<NodeId> {
        self.own(hash).or_else(|| self.other(hash).map(|slot| slot.node))
    }

    /// The node whose own slot has this hash.
    fn own(&self, hash: EngineHash) -> Option<NodeId> {
        if self.group != Some(hash.group) {
            return None;
        }
        self.by_hash.find(self.codes.of(hash.hash), |node| {
            self.nodes.hash(node) == hash.hash
        })
    }

    fn other(&self, hash: EngineHash) -> Option<&Slot> {
        if self.others.is_empty() {
            return None;
        }
        self.others
            .find(self.hasher.hash_one(hash), |slot| slot.hash == hash)
    }

    /// One more copy of `hash`, which leads to `node`.
    pub(super) fn add_copy(&mut self, hash: EngineHash, node: NodeId) {
        let mut counts = self.nodes.counts(node);
        if counts.copies > 0 && self.group == Some(hash.group) && self.nodes.hash(node) == hash.hash {
            self.copied += usize::from(counts.copies == 1);
            counts.copies = counts.copies.saturating_add(1);
            self.nodes.set_counts(node, counts);
            return;
        }
        let code = self.hasher.hash_one(hash);
        if let Some(slot) = self.others.find_mut(code, |slot| slot.hash == hash) {
            self.copied += usize::from(slot.copies == 1);
            slot.copies = slot.copies.saturating_add(1);
        }
    }

    /// A block that `hash` does not lead to yet, in `copies` copies; says so in `ops`.
    pub(super) fn store(
        &mut self,
        hash: EngineHash,
        before: Before,
        content: ContentHash,
        copies: u16,
        cause: Cause,
        ops: &mut Vec<Op>,
    ) -> NodeId {
        let parent = self.key_of(before);
        let key = parent.child(content);
        let node = self.node(key, before);
        self.lead_to(hash, node, copies);
        ops.push(cause.op(parent, key));
        node
    }

    /// Makes `hash` lead to `node`, which is from now on held for that reason and not by inference.
    pub(super) fn lead_to(&mut self, hash: EngineHash, node: NodeId, copies: u16) {
        let group = *self.group.get_or_insert(hash.group);
        let mut counts = self.nodes.counts(node);
        if counts.slots() == 0 {
            self.unslotted -= 1;
            if !counts.inferred && self.nodes.has_children(node) {
                self.ghosts -= 1;
            }
            counts.inferred = false;
        }
        self.copied += usize::from(copies > 1);
        if counts.copies == 0 && hash.group == group {
            counts.copies = copies;
            self.nodes.set_hash(node, hash.hash);
            let (nodes, codes) = (&self.nodes, self.codes);
            self.by_hash
                .insert(codes.of(hash.hash), node, |node| codes.of(nodes.hash(node)));
        } else {
            counts.others += 1;
            let hasher = &self.hasher;
            self.others
                .insert_unique(hasher.hash_one(hash), Slot { hash, node, copies }, |slot| {
                    hasher.hash_one(slot.hash)
                });
        }
        self.nodes.set_counts(node, counts);
    }

    /// Holds `keys`, the first blocks of a prompt, by inference where they are not held. The last of them.
    pub(super) fn infer(&mut self, keys: &[BlockKey], ops: &mut Vec<Op>) -> Option<NodeId> {
        let mut last = None;
        for &key in keys {
            // a first block's root only matters for its key, which is given
            let before = last.map_or(Before::Root(key), Before::Node);
            let node = self.node(key, before);
            let mut counts = self.nodes.counts(node);
            if !counts.held() {
                counts.inferred = true;
                self.nodes.set_counts(node, counts);
                self.ghosts -= usize::from(self.nodes.has_children(node));
                ops.push(Op::Infer { key });
            }
            last = Some(node);
        }
        last
    }

    /// Whether `key`, of a first block, is held or has been and its children still are.
    pub(super) fn knows_first(&self, key: BlockKey) -> bool {
        self.child(None, key).is_some()
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

    /// Keeps an inferred block although it has no child, until [`Blocks::unpin`].
    pub(super) fn pin(&mut self, node: NodeId) -> bool {
        let mut counts = self.nodes.counts(node);
        let room = counts.inferred && counts.pins < u16::MAX;
        if room {
            counts.pins += 1;
            self.nodes.set_counts(node, counts);
            self.pinned.insert(self.key(node), node);
        }
        room
    }

    /// The inference has run out.
    pub(super) fn unpin(&mut self, key: BlockKey, ops: &mut Vec<Op>) {
        let Some(&node) = self.pinned.get(&key) else {
            return;
        };
        let mut counts = self.nodes.counts(node);
        counts.pins -= 1;
        if counts.pins == 0 {
            self.pinned.remove(&key);
        }
        let gone = counts.inferred && counts.pins == 0 && !self.nodes.has_children(node);
        counts.inferred &= !gone;
        self.nodes.set_counts(node, counts);
        if gone {
            ops.push(Op::Remove { key });
            self.unslotted -= 1;
            self.drop_node(node, ops);
        }
    }

    /// One copy of `hash` is gone.
    pub(super) fn remove(&mut self, hash: EngineHash, ops: &mut Vec<Op>) -> Removal {
        let (node, counts) = match self.take_copy(hash) {
            Ok(taken) => taken,
            Err(removal) => return removal,
        };
        self.nodes.set_counts(node, counts);
        if counts.slots() > 0 {
            return Removal::Last;
        }
        let key = self.key(node);
        if self.nodes.has_children(node) {
            self.unslotted += 1;
            self.ghosts += 1;
            if !self.told_holes {
                self.told_holes = true;
                ops.push(Op::Gapless(false));
            }
            ops.push(Op::Remove { key });
        } else {
            ops.push(Op::Remove { key });
            self.drop_node(node, ops);
        }
        Removal::Last
    }

    /// Takes a copy of `hash` away. When it was the last: where it led, and what is to be counted there.
    fn take_copy(&mut self, hash: EngineHash) -> Result<(NodeId, Counts), Removal> {
        if let Some(node) = self.own(hash) {
            let mut counts = self.nodes.counts(node);
            counts.copies -= 1;
            self.copied -= usize::from(counts.copies == 1);
            if counts.copies > 0 {
                self.nodes.set_counts(node, counts);
                return Err(Removal::Copy);
            }
            self.by_hash
                .remove(self.codes.of(hash.hash), |other| other == node);
            return Ok((node, counts));
        }
        if self.others.is_empty() {
            return Err(Removal::Unknown);
        }
        let code = self.hasher.hash_one(hash);
        let found = self.others.find_entry(code, |slot| slot.hash == hash);
        let mut entry = found.map_err(|_| Removal::Unknown)?;
        let slot = entry.get_mut();
        if slot.copies > 1 {
            slot.copies -= 1;
            self.copied -= usize::from(slot.copies == 1);
            return Err(Removal::Copy);
        }
        let node = slot.node;
        entry.remove();
        let mut counts = self.nodes.counts(node);
        counts.others -= 1;
        Ok((node, counts))
    }

    /// Sets every count of copies to one; how many were more.
    pub(super) fn forget_copies(&mut self) -> usize {
        if self.copied > 0 {
            self.nodes.forget_copies();
            for slot in &mut self.others {
                slot.copies = 1;
            }
        }
        std::mem::take(&mut self.copied)
    }

    /// Tells the index that there are no holes any more, if that is so and it does not know.
    pub(super) fn tell_gapless(&mut self, ops: &mut Vec<Op>) {
        if self.told_holes && self.ghosts == 0 {
            self.told_holes = false;
            ops.push(Op::Gapless(true));
        }
    }

    /// Forgets everything and gives the memory back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The node of `key`, which follows `parent` (none: it is a first block).
    fn child(&self, parent: Option<NodeId>, key: BlockKey) -> Option<NodeId> {
        if let Some(parent) = parent {
            if let Some(child) = self.nodes.child(parent)
                && self.key(child) == key
            {
                return Some(child);
            }
            if self.nodes.counts(parent).branches == 0 {
                return None;
            }
        }
        self.by_key
            .find(self.codes.of(key.get()), |node| self.key(node) == key)
    }

    /// The node of `key`, made if there is none; a new one is held by nobody yet.
    fn node(&mut self, key: BlockKey, before: Before) -> NodeId {
        let parent = before.node();
        if let Some(known) = self.child(parent, key) {
            return known;
        }
        let node = self.nodes.add(key, parent);
        self.unslotted += 1;
        match parent {
            Some(parent) if self.nodes.child(parent).is_none() => self.nodes.set_child(parent, Some(node)),
            _ => {
                if let Some(parent) = parent {
                    let mut counts = self.nodes.counts(parent);
                    counts.branches += 1;
                    self.nodes.set_counts(parent, counts);
                }
                let (nodes, codes) = (&self.nodes, self.codes);
                self.by_key
                    .insert(codes.of(key.get()), node, |node| codes.of(nodes.key(node).get()));
            }
        }
        node
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
        let code = self.codes.of(self.key(node).get());
        self.by_key.remove(code, |other| other == node);
    }

    /// Frees a node that nobody holds, that has no children and is no longer counted, and what it alone kept.
    fn drop_node(&mut self, node: NodeId, ops: &mut Vec<Op>) {
        let mut node = node;
        loop {
            let parent = self.nodes.parent(node);
            self.unlink(node, parent);
            if self.nodes.counts(node).pins > 0 {
                self.pinned.remove(&self.key(node));
            }
            self.nodes.free(node);
            let Some(parent) = parent else { return };
            let mut above = self.nodes.counts(parent);
            let pinned = above.pins > 0 && above.inferred;
            if above.slots() > 0 || pinned || self.nodes.has_children(parent) {
                return;
            }
            if above.inferred {
                above.inferred = false;
                self.nodes.set_counts(parent, above);
                ops.push(Op::Remove {
                    key: self.key(parent),
                });
            } else {
                self.ghosts -= 1;
            }
            self.unslotted -= 1;
            node = parent;
        }
    }

    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        self.nodes.heap_bytes() + self.by_hash.heap_bytes() + self.by_key.heap_bytes()
    }
}
