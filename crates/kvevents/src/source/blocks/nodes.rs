//! The nodes: 16 bytes each, in pieces that are never moved. What does not fit is kept aside.

use hashbrown::HashMap;
use lmetric_prefix::BlockKey;

/// Nodes in a piece of memory.
const PIECE: usize = 256;

/// Position of a node, in 24 bits; valid while the node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::source) struct NodeId(u32);

/// No node.
const NONE: NodeId = NodeId(0x00FF_FFFF);

impl NodeId {
    /// Most nodes there can be.
    pub(in crate::source) const MOST: usize = NONE.0 as usize;

    pub(super) fn from_bytes([a, b, c]: [u8; 3]) -> Self {
        Self(u32::from_le_bytes([a, b, c, 0]))
    }

    pub(super) fn to_bytes(self) -> [u8; 3] {
        let [a, b, c, _] = self.0.to_le_bytes();
        [a, b, c]
    }

    fn some(self) -> Option<Self> {
        (self != NONE).then_some(self)
    }
}

/// A position and eight bits more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link(u32);

impl Link {
    fn new(node: NodeId, bits: u8) -> Self {
        Self(node.0 << 8 | u32::from(bits))
    }

    fn node(self) -> NodeId {
        NodeId(self.0 >> 8)
    }

    fn bits(self) -> u8 {
        self.0 as u8
    }
}

/// One of our keys, and what is before and after it.
#[derive(Clone, Copy, Debug)]
struct Node {
    key: BlockKey,
    /// The node before it (of a free node: the next free one), and the copies of its own hash.
    parent: Link,
    /// One of the nodes after it, and the number of others; or [`RARE`].
    child: Link,
}

const _: () = assert!(size_of::<Node>() == 16);

/// In the bits of [`Node::child`]: the counts are kept aside.
const RARE: u8 = u8::MAX;

/// What is counted of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Copies of the engine's hash that is the node's own; none when it has none.
    pub(super) copies: u16,
    /// Other hashes that lead to it.
    pub(super) others: u32,
    /// Nodes after it beside the one that it names.
    pub(super) branches: u32,
    /// Inferences that have not run out.
    pub(super) pins: u16,
    /// Held by inference.
    pub(super) inferred: bool,
    /// Made by an inference: what is before it is what we were told.
    pub(super) told: bool,
}

impl Counts {
    /// Hashes that lead to the node.
    pub(super) fn slots(self) -> u32 {
        u32::from(self.copies > 0) + self.others
    }

    pub(super) fn held(self) -> bool {
        self.slots() > 0 || self.inferred
    }

    /// The two bytes that a node has room for, if that is all.
    fn plain(self) -> Option<(u8, u8)> {
        let Self {
            copies,
            others: 0,
            branches,
            pins: 0,
            inferred: false,
            told: false,
        } = self
        else {
            return None;
        };
        let branches = u8::try_from(branches).ok().filter(|&few| few != RARE)?;
        Some((u8::try_from(copies).ok()?, branches))
    }
}

#[derive(Debug)]
pub(super) struct Nodes {
    pieces: Vec<Vec<Node>>,
    /// Of nodes that have more than most.
    rare: HashMap<NodeId, Counts>,
    /// The last one freed.
    free: NodeId,
    len: usize,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            pieces: Vec::new(),
            rare: HashMap::new(),
            free: NONE,
            len: 0,
        }
    }
}

impl Nodes {
    /// Nodes that live.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn get(&self, id: NodeId) -> &Node {
        &self.pieces[id.0 as usize / PIECE][id.0 as usize % PIECE]
    }

    fn get_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.pieces[id.0 as usize / PIECE][id.0 as usize % PIECE]
    }

    /// A node with so many copies of its own hash that has no children. There are fewer than [`NodeId::MOST`].
    pub(super) fn add(&mut self, key: BlockKey, parent: Option<NodeId>, copies: u8) -> NodeId {
        let node = Node {
            key,
            parent: Link::new(parent.unwrap_or(NONE), copies),
            child: Link::new(NONE, 0),
        };
        self.len += 1;
        if let Some(id) = self.free.some() {
            let free = self.get_mut(id);
            let next = free.parent.node();
            *free = node;
            self.free = next;
            return id;
        }
        // nothing is free, so all that there ever were live
        let id = self.len - 1;
        assert!(id < NodeId::MOST, "a source's bound is lower");
        if id.is_multiple_of(PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        self.pieces[id / PIECE].push(node);
        NodeId(id as u32)
    }

    /// Gives a node back.
    pub(super) fn free(&mut self, id: NodeId) {
        self.set_counts(id, Counts::default());
        let next = self.free;
        self.get_mut(id).parent = Link::new(next, 0);
        self.free = id;
        self.len -= 1;
    }

    pub(super) fn key(&self, id: NodeId) -> BlockKey {
        self.get(id).key
    }

    pub(super) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.get(id).parent.node().some()
    }

    /// One of the nodes after it.
    pub(super) fn child(&self, id: NodeId) -> Option<NodeId> {
        self.get(id).child.node().some()
    }

    pub(super) fn set_child(&mut self, id: NodeId, child: Option<NodeId>) {
        let node = self.get_mut(id);
        node.child = Link::new(child.unwrap_or(NONE), node.child.bits());
    }

    /// Whether there are nodes after it.
    pub(super) fn has_children(&self, id: NodeId) -> bool {
        self.child(id).is_some() || self.counts(id).branches > 0
    }

    pub(super) fn counts(&self, id: NodeId) -> Counts {
        let node = self.get(id);
        match node.child.bits() {
            RARE => self.rare.get(&id).copied().unwrap_or_default(),
            branches => Counts {
                copies: u16::from(node.parent.bits()),
                branches: u32::from(branches),
                ..Counts::default()
            },
        }
    }

    pub(super) fn set_counts(&mut self, id: NodeId, counts: Counts) {
        let was_rare = self.get(id).child.bits() == RARE;
        let (copies, branches) = counts.plain().unwrap_or((0, RARE));
        if branches == RARE {
            self.rare.insert(id, counts);
        } else if was_rare {
            self.rare.remove(&id);
        }
        let node = self.get_mut(id);
        node.parent = Link::new(node.parent.node(), copies);
        node.child = Link::new(node.child.node(), branches);
    }

    /// Sets all copies above one to one.
    pub(super) fn forget_copies(&mut self) {
        for counts in self.rare.values_mut() {
            counts.copies = counts.copies.min(1);
        }
        for node in self.pieces.iter_mut().flatten() {
            node.parent = Link::new(node.parent.node(), node.parent.bits().min(1));
        }
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.pieces.len() * PIECE * size_of::<Node>()
            + self.pieces.capacity() * size_of::<Vec<Node>>()
            + self.rare.allocation_size()
    }
}
