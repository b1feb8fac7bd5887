//! The blocks that one source holds: engine hash → block, and the chains that blocks form.
//!
//! A *slot* is one engine hash in one KV cache group, with the number of its copies. A *node* is one of our keys;
//! usually one slot leads to it, none when it is held by inference or when only its children are left (a *ghost*: a
//! hole in a chain). A node whose last child goes and that nobody holds goes too.
//!
//! What nearly every node has is in the node: the copies of one hash of the source's first group, one child.

mod chains;
mod ids;
mod nodes;
#[cfg(test)]
mod plain;
mod slots;
#[cfg(test)]
mod tests;

use hashbrown::HashMap;
use lmetric_prefix::{BlockKey, ContentHash};

use crate::Op;
use chains::Chains;
pub(super) use nodes::NodeId;
use slots::Slots;

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

#[derive(Debug, Default)]
pub(super) struct Blocks {
    chains: Chains,
    slots: Slots,
    /// Nodes with pins.
    pinned: HashMap<BlockKey, NodeId>,
    /// Nodes that no slot leads to.
    unslotted: usize,
    /// Nodes that nobody holds and whose children keep them.
    ghosts: usize,
    /// What the index was told last.
    told_holes: bool,
}

impl Blocks {
    /// Most entries there can be.
    pub(super) const MOST: usize = NodeId::MOST;

    /// Entries that count against the source's bound.
    pub(super) fn used(&self) -> usize {
        self.slots.len() + self.unslotted
    }

    /// Blocks that the index knows as held.
    pub(super) fn held(&self) -> usize {
        self.chains.nodes.len() - self.ghosts
    }

    pub(super) fn key(&self, node: NodeId) -> BlockKey {
        self.chains.nodes.key(node)
    }

    /// Key of the block before `node`; `root` for a first block.
    pub(super) fn key_before(&self, node: NodeId, root: BlockKey) -> BlockKey {
        let parent = self.chains.nodes.parent(node);
        parent.map_or(root, |parent| self.key(parent))
    }

    fn key_of(&self, before: Before) -> BlockKey {
        match before {
            Before::Root(root) => root,
            Before::Node(node) => self.key(node),
        }
    }

    /// Brings near what is known of these hashes and keys, the latter of first blocks, which will be looked for one by
    /// one.
    pub(super) fn fetch(&self, hashes: &[u64], first: impl Iterator<Item = BlockKey>) {
        self.slots.fetch(hashes);
        self.chains.fetch(first);
    }

    /// The block that the engine knows by `hash`.
    pub(super) fn find(&self, hash: EngineHash) -> Option<NodeId> {
        self.slots.find(hash)
    }

    /// One more copy of `hash`, which leads to `node`.
    pub(super) fn add_copy(&mut self, hash: EngineHash, node: NodeId) {
        self.slots.add_copy(&mut self.chains.nodes, hash, node);
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
        ops.push(cause.op(parent, key));
        let known = self.chains.child(before.node(), key);
        match (known, u8::try_from(copies)) {
            (None, Ok(few)) if self.slots.is_own(hash.group) => {
                let node = self.chains.add(key, before.node(), few);
                self.slots.add_own(hash.hash, node, copies);
                node
            }
            (known, _) => {
                let node = known.unwrap_or_else(|| {
                    self.unslotted += 1;
                    self.chains.add(key, before.node(), 0)
                });
                self.lead_to(hash, node, copies);
                node
            }
        }
    }

    /// Makes `hash` lead to `node`, which is from now on held for that reason and not by inference.
    pub(super) fn lead_to(&mut self, hash: EngineHash, node: NodeId, copies: u16) {
        let nodes = &mut self.chains.nodes;
        let mut counts = nodes.counts(node);
        if counts.slots() == 0 {
            self.unslotted -= 1;
            if counts.inferred {
                counts.inferred = false;
                nodes.set_counts(node, counts);
            } else if nodes.has_children(node) {
                self.ghosts -= 1;
            }
        }
        self.slots.add(nodes, hash, node, copies);
    }

    /// Holds `keys`, the first blocks of a prompt, by inference where they are not held. The last of them.
    pub(super) fn infer(&mut self, keys: &[BlockKey], ops: &mut Vec<Op>) -> Option<NodeId> {
        let mut last = None;
        for &key in keys {
            let node = self.chains.child(last, key).unwrap_or_else(|| {
                self.unslotted += 1;
                self.chains.add_told(key, last)
            });
            let nodes = &mut self.chains.nodes;
            let mut counts = nodes.counts(node);
            if !counts.held() {
                self.ghosts -= usize::from(nodes.has_children(node));
                counts.inferred = true;
                nodes.set_counts(node, counts);
                ops.push(Op::Infer { key });
            }
            last = Some(node);
        }
        last
    }

    /// Whether `key`, of a first block, is held or has been and its children still are.
    pub(super) fn knows_first(&self, key: BlockKey) -> bool {
        self.chains.child(None, key).is_some()
    }

    /// How many of `keys`, the first blocks of a prompt, have no node.
    pub(super) fn missing(&self, keys: &[BlockKey]) -> usize {
        self.chains.missing(keys)
    }

    /// Keeps an inferred block although it has no child, until [`Blocks::unpin`].
    pub(super) fn pin(&mut self, node: NodeId) -> bool {
        let mut counts = self.chains.nodes.counts(node);
        let room = counts.inferred && counts.pins < u16::MAX;
        if room {
            counts.pins += 1;
            self.chains.nodes.set_counts(node, counts);
            self.pinned.insert(self.key(node), node);
        }
        room
    }

    /// The inference has run out.
    pub(super) fn unpin(&mut self, key: BlockKey, ops: &mut Vec<Op>) {
        let Some(&node) = self.pinned.get(&key) else {
            return;
        };
        let nodes = &mut self.chains.nodes;
        let mut counts = nodes.counts(node);
        counts.pins -= 1;
        if counts.pins == 0 {
            self.pinned.remove(&key);
        }
        let gone = counts.inferred && counts.pins == 0 && !nodes.has_children(node);
        counts.inferred &= !gone;
        nodes.set_counts(node, counts);
        if gone {
            ops.push(Op::Remove { key });
            self.unslotted -= 1;
            self.drop_node(node, ops);
        }
    }

    /// One copy of `hash` is gone.
    pub(super) fn remove(&mut self, hash: EngineHash, ops: &mut Vec<Op>) -> Removal {
        let (node, counts) = match self.slots.take_copy(&mut self.chains.nodes, hash) {
            Ok(last) => last,
            Err(removal) => return removal,
        };
        if counts.slots() > 0 {
            return Removal::Last;
        }
        let key = self.key(node);
        if self.chains.nodes.has_children(node) {
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

    /// Sets every count of copies to one; how many were more.
    pub(super) fn forget_copies(&mut self) -> usize {
        self.slots.forget_copies(&mut self.chains.nodes)
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

    /// Frees a node that nobody holds, that has no children and is no longer counted, and what it alone kept.
    fn drop_node(&mut self, node: NodeId, ops: &mut Vec<Op>) {
        let mut node = node;
        loop {
            if self.chains.nodes.counts(node).pins > 0 {
                self.pinned.remove(&self.key(node));
            }
            let Some(parent) = self.chains.free(node) else {
                return;
            };
            let mut above = self.chains.nodes.counts(parent);
            let pinned = above.pins > 0 && above.inferred;
            if above.slots() > 0 || pinned || self.chains.nodes.has_children(parent) {
                return;
            }
            if above.inferred {
                above.inferred = false;
                self.chains.nodes.set_counts(parent, above);
                let key = self.key(parent);
                ops.push(Op::Remove { key });
            } else {
                self.ghosts -= 1;
            }
            self.unslotted -= 1;
            node = parent;
        }
    }

    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        self.chains.heap_bytes() + self.slots.heap_bytes()
    }
}
