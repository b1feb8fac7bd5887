//! The same books kept the obvious way: what [`Blocks`](super::Blocks) must say.

use std::collections::HashMap;

use lmetric_prefix::{BlockKey, ContentHash};

use super::{Cause, EngineHash, Removal};
use crate::Op;

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    parent: Option<BlockKey>,
    children: usize,
    slots: usize,
    pins: usize,
    inferred: bool,
}

#[derive(Debug, Default)]
pub(super) struct Plain {
    slots: HashMap<EngineHash, (BlockKey, u16)>,
    nodes: HashMap<BlockKey, Node>,
    told_holes: bool,
}

impl Plain {
    pub(super) fn used(&self) -> usize {
        self.slots.len() + self.nodes.values().filter(|node| node.slots == 0).count()
    }

    pub(super) fn held(&self) -> usize {
        self.nodes.len() - self.ghosts()
    }

    fn ghosts(&self) -> usize {
        let ghosts = self
            .nodes
            .values()
            .filter(|node| node.slots == 0 && !node.inferred);
        ghosts.count()
    }

    pub(super) fn find(&self, hash: EngineHash) -> Option<BlockKey> {
        self.slots.get(&hash).map(|(key, _)| *key)
    }

    pub(super) fn parent(&self, key: BlockKey) -> Option<BlockKey> {
        self.nodes[&key].parent
    }

    pub(super) fn add_copy(&mut self, hash: EngineHash) {
        let (_, copies) = self.slots.get_mut(&hash).unwrap();
        *copies = copies.saturating_add(1);
    }

    pub(super) fn store(
        &mut self,
        hash: EngineHash,
        before: (BlockKey, bool),
        content: ContentHash,
        copies: u16,
        cause: Cause,
        ops: &mut Vec<Op>,
    ) {
        let (parent, is_node) = before;
        let key = parent.child(content);
        self.node(key, is_node.then_some(parent));
        self.lead_to(hash, key, copies);
        ops.push(match cause {
            Cause::Computed => Op::Store { parent, key },
            Cause::Earlier => Op::Adopt { parent, key },
            Cause::Reported => Op::Infer { key },
        });
    }

    pub(super) fn lead_to(&mut self, hash: EngineHash, key: BlockKey, copies: u16) {
        assert!(self.slots.insert(hash, (key, copies)).is_none());
        let node = self.nodes.get_mut(&key).unwrap();
        node.slots += 1;
        node.inferred = false;
    }

    pub(super) fn infer(&mut self, keys: &[BlockKey], ops: &mut Vec<Op>) {
        let mut last = None;
        for &key in keys {
            self.node(key, last);
            let node = self.nodes.get_mut(&key).unwrap();
            if node.slots == 0 && !node.inferred {
                node.inferred = true;
                ops.push(Op::Infer { key });
            }
            last = Some(key);
        }
    }

    pub(super) fn knows(&self, key: BlockKey) -> bool {
        self.nodes.contains_key(&key)
    }

    pub(super) fn missing(&self, keys: &[BlockKey]) -> usize {
        keys.iter().filter(|key| !self.knows(**key)).count()
    }

    pub(super) fn pin(&mut self, key: BlockKey) -> bool {
        let node = self.nodes.get_mut(&key).unwrap();
        node.pins += usize::from(node.inferred);
        node.inferred
    }

    pub(super) fn unpin(&mut self, key: BlockKey, ops: &mut Vec<Op>) {
        let Some(node) = self.nodes.get_mut(&key).filter(|node| node.pins > 0) else {
            return;
        };
        node.pins -= 1;
        self.settle(key, ops);
    }

    pub(super) fn remove(&mut self, hash: EngineHash, ops: &mut Vec<Op>) -> Removal {
        let Some((key, copies)) = self.slots.get_mut(&hash) else {
            return Removal::Unknown;
        };
        if *copies > 1 {
            *copies -= 1;
            return Removal::Copy;
        }
        let key = *key;
        self.slots.remove(&hash);
        let node = self.nodes.get_mut(&key).unwrap();
        node.slots -= 1;
        if node.slots > 0 {
            return Removal::Last;
        }
        if node.children > 0 && !self.told_holes {
            self.told_holes = true;
            ops.push(Op::Gapless(false));
        }
        ops.push(Op::Remove { key });
        self.settle(key, ops);
        Removal::Last
    }

    pub(super) fn forget_copies(&mut self) -> usize {
        let mut more = 0;
        for (_, copies) in self.slots.values_mut() {
            more += usize::from(*copies > 1);
            *copies = 1;
        }
        more
    }

    pub(super) fn tell_gapless(&mut self, ops: &mut Vec<Op>) {
        if self.told_holes && self.ghosts() == 0 {
            self.told_holes = false;
            ops.push(Op::Gapless(true));
        }
    }

    fn node(&mut self, key: BlockKey, parent: Option<BlockKey>) {
        if self.nodes.contains_key(&key) {
            return;
        }
        let node = Node {
            parent,
            ..Node::default()
        };
        self.nodes.insert(key, node);
        if let Some(parent) = parent {
            self.nodes.get_mut(&parent).unwrap().children += 1;
        }
    }

    /// Drops `key` and what is above it as far as nothing keeps them.
    fn settle(&mut self, key: BlockKey, ops: &mut Vec<Op>) {
        let mut key = key;
        loop {
            let node = self.nodes[&key];
            if node.slots > 0 || node.children > 0 || node.inferred && node.pins > 0 {
                return;
            }
            if node.inferred {
                ops.push(Op::Remove { key });
            }
            self.nodes.remove(&key);
            let Some(parent) = node.parent else { return };
            self.nodes.get_mut(&parent).unwrap().children -= 1;
            key = parent;
        }
    }
}
