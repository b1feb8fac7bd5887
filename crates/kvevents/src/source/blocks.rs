//! The blocks that one source holds: engine hash → block, and the chains that blocks form.
//!
//! Two tables. A *slot* is one engine hash in one KV cache group, with the number of its copies. A *node*
//! is one of our keys; usually one slot leads to it, none when it is held by inference or when only its
//! children are left (a *ghost*: a hole in a chain). A node whose last child goes and that nobody holds
//! goes too.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};
use lmetric_prefix::{BlockKey, ContentHash};

use crate::Op;

/// Position of a node; valid while the node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u32);

const ROOT: NodeId = NodeId(u32::MAX);

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

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    node: NodeId,
    group: u16,
    copies: u16,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    key: BlockKey,
    parent: NodeId,
    children: u32,
    slots: u32,
    /// Inferences that have not run out.
    pins: u16,
    inferred: bool,
}

impl Node {
    fn held(&self) -> bool {
        self.slots > 0 || self.inferred
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
    slots: HashTable<Slot>,
    by_key: HashTable<NodeId>,
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    /// Nodes that no slot leads to.
    unslotted: usize,
    /// Nodes that nobody holds and whose children keep them.
    ghosts: usize,
    /// Slots with more than one copy.
    copied: usize,
    /// What the index was told last.
    told_holes: bool,
    hasher: DefaultHashBuilder,
}

impl Blocks {
    /// Entries that count against the source's bound.
    pub(super) fn used(&self) -> usize {
        self.slots.len() + self.unslotted
    }

    /// Blocks that the index knows as held.
    pub(super) fn held(&self) -> usize {
        self.nodes.len() - self.free.len() - self.ghosts
    }

    pub(super) fn key(&self, node: NodeId) -> BlockKey {
        self.nodes[node.0 as usize].key
    }

    /// Key of the block before `node`; `root` for a first block.
    pub(super) fn key_before(&self, node: NodeId, root: BlockKey) -> BlockKey {
        match self.nodes[node.0 as usize].parent {
            ROOT => root,
            parent => self.key(parent),
        }
    }

    pub(super) fn key_of(&self, before: Before) -> BlockKey {
        match before {
            Before::Root(root) => root,
            Before::Node(node) => self.key(node),
        }
    }

    /// The block that the engine knows by `hash`.
    pub(super) fn find(&self, hash: EngineHash) -> Option<NodeId> {
        let code = self.hasher.hash_one(hash);
        self.slots
            .find(code, |slot| slot.hash == hash.hash && slot.group == hash.group)
            .map(|slot| slot.node)
    }

    /// One more copy of a block that is known.
    pub(super) fn add_copy(&mut self, hash: EngineHash) {
        let code = self.hasher.hash_one(hash);
        let found = self
            .slots
            .find_mut(code, |slot| slot.hash == hash.hash && slot.group == hash.group);
        if let Some(slot) = found {
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
        ops.push(match cause {
            Cause::Computed => Op::Store { parent, key },
            Cause::Earlier => Op::Adopt { parent, key },
            Cause::Reported => Op::Infer { key },
        });
        node
    }

    /// Makes `hash` lead to `node`, which is from now on held for that reason and not by inference.
    pub(super) fn lead_to(&mut self, hash: EngineHash, node: NodeId, copies: u16) {
        let code = self.hasher.hash_one(hash);
        let slot = Slot {
            hash: hash.hash,
            node,
            group: hash.group,
            copies,
        };
        let hasher = &self.hasher;
        self.slots.insert_unique(code, slot, |slot| {
            hasher.hash_one(EngineHash {
                hash: slot.hash,
                group: slot.group,
            })
        });
        self.copied += usize::from(copies > 1);
        let known = &mut self.nodes[node.0 as usize];
        if known.slots == 0 {
            self.unslotted -= 1;
            if !known.inferred && known.children > 0 {
                self.ghosts -= 1;
            }
            known.inferred = false;
        }
        known.slots += 1;
    }

    /// Holds `keys`, the first blocks of a prompt, by inference where they are not held. The last of them.
    pub(super) fn infer(&mut self, keys: &[BlockKey], ops: &mut Vec<Op>) -> Option<NodeId> {
        let mut last = None;
        for &key in keys {
            // a first block's root only matters for its key, which is given
            let before = last.map_or(Before::Root(key), Before::Node);
            let node = self.node(key, before);
            let known = &mut self.nodes[node.0 as usize];
            if !known.held() {
                known.inferred = true;
                if known.children > 0 {
                    self.ghosts -= 1;
                }
                ops.push(Op::Infer { key });
            }
            last = Some(node);
        }
        last
    }

    /// Whether `key` is held or has been and its children still are.
    pub(super) fn knows(&self, key: BlockKey) -> bool {
        self.by_key(key).is_some()
    }

    /// How many of `keys` have no node.
    pub(super) fn missing(&self, keys: &[BlockKey]) -> usize {
        keys.iter().filter(|&&key| !self.knows(key)).count()
    }

    /// Keeps an inferred block although it has no child, until [`Blocks::unpin`].
    pub(super) fn pin(&mut self, node: NodeId) -> bool {
        let known = &mut self.nodes[node.0 as usize];
        let room = known.inferred && known.pins < u16::MAX;
        known.pins += u16::from(room);
        room
    }

    /// The inference has run out.
    pub(super) fn unpin(&mut self, key: BlockKey, ops: &mut Vec<Op>) {
        let Some(node) = self.by_key(key) else { return };
        let known = &mut self.nodes[node.0 as usize];
        known.pins = known.pins.saturating_sub(1);
        if known.inferred && known.pins == 0 && known.children == 0 {
            known.inferred = false;
            ops.push(Op::Remove { key });
            self.unslotted -= 1;
            self.drop_node(node, ops);
        }
    }

    /// One copy of `hash` is gone.
    pub(super) fn remove(&mut self, hash: EngineHash, ops: &mut Vec<Op>) -> Removal {
        let code = self.hasher.hash_one(hash);
        let Ok(mut entry) = self
            .slots
            .find_entry(code, |slot| slot.hash == hash.hash && slot.group == hash.group)
        else {
            return Removal::Unknown;
        };
        let slot = entry.get_mut();
        if slot.copies > 1 {
            slot.copies -= 1;
            self.copied -= usize::from(slot.copies == 1);
            return Removal::Copy;
        }
        let node = slot.node;
        entry.remove();
        let known = &mut self.nodes[node.0 as usize];
        known.slots -= 1;
        if known.slots > 0 {
            return Removal::Last;
        }
        let key = known.key;
        if known.children > 0 {
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
        if self.copied > 0 {
            for slot in &mut self.slots {
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
        *self = Self {
            hasher: self.hasher.clone(),
            ..Self::default()
        };
    }

    fn by_key(&self, key: BlockKey) -> Option<NodeId> {
        let code = self.hasher.hash_one(key);
        self.by_key.find(code, |&node| self.key(node) == key).copied()
    }

    /// The node of `key`, made if there is none; a new one is held by nobody yet.
    fn node(&mut self, key: BlockKey, before: Before) -> NodeId {
        let (nodes, hasher) = (&mut self.nodes, &self.hasher);
        let code = hasher.hash_one(key);
        let entry = self.by_key.entry(
            code,
            |node| nodes[node.0 as usize].key == key,
            |node| hasher.hash_one(nodes[node.0 as usize].key),
        );
        let vacant = match entry {
            Entry::Occupied(found) => return *found.get(),
            Entry::Vacant(vacant) => vacant,
        };
        let parent = match before {
            Before::Root(_) => ROOT,
            Before::Node(node) => node,
        };
        let id = self.free.pop().unwrap_or(NodeId(nodes.len() as u32));
        vacant.insert(id);
        let node = Node {
            key,
            parent,
            children: 0,
            slots: 0,
            pins: 0,
            inferred: false,
        };
        match nodes.get_mut(id.0 as usize) {
            Some(free) => *free = node,
            None => nodes.push(node),
        }
        if parent != ROOT {
            nodes[parent.0 as usize].children += 1;
        }
        self.unslotted += 1;
        id
    }

    /// Frees a node that nobody holds, that has no children and is no longer counted, and what it alone kept.
    fn drop_node(&mut self, node: NodeId, ops: &mut Vec<Op>) {
        let mut node = node;
        loop {
            let Node { key, parent, .. } = self.nodes[node.0 as usize];
            let code = self.hasher.hash_one(key);
            if let Ok(entry) = self.by_key.find_entry(code, |&other| other == node) {
                entry.remove();
            }
            self.free.push(node);
            if parent == ROOT {
                return;
            }
            let above = &mut self.nodes[parent.0 as usize];
            above.children -= 1;
            if above.children > 0 || above.slots > 0 || above.pins > 0 && above.inferred {
                return;
            }
            if above.inferred {
                above.inferred = false;
                ops.push(Op::Remove { key: above.key });
            } else {
                self.ghosts -= 1;
            }
            self.unslotted -= 1;
            node = parent;
        }
    }
}
