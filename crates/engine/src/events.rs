//! What happened to the prefix cache, in the order in which the engine did it.
//!
//! One flat buffer for a step, reused from step to step: no allocation per event.

use crate::{BlockHash, RequestId};

/// One change of the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A run of consecutive full blocks of one request is cached from now on.
    Stored {
        /// Whose blocks.
        request: RequestId,
        /// Position of the first block in the request.
        first_block: u32,
        /// The block before the run; none at the start of a prompt.
        parent: Option<BlockHash>,
        /// The blocks.
        hashes: &'a [BlockHash],
        /// Their tokens; empty where prompts are synthetic.
        tokens: &'a [u32],
        /// A repetition for a request that asked for a report of what it reused: no new copy.
        repeated: bool,
    },
    /// One copy of a block was evicted.
    Removed {
        /// Which.
        hash: BlockHash,
    },
    /// The whole prefix cache was dropped.
    Cleared,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Stored {
        request: RequestId,
        first_block: u32,
        parent: Option<BlockHash>,
        hashes: (u32, u32),
        tokens: (u32, u32),
        repeated: bool,
    },
    Removed(BlockHash),
    Cleared,
}

/// The events of one step.
#[derive(Clone, Debug, Default)]
pub struct Events {
    entries: Vec<Entry>,
    hashes: Vec<BlockHash>,
    tokens: Vec<u32>,
}

impl Events {
    /// No event.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many events.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// In engine order.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        self.entries.iter().map(|entry| match *entry {
            Entry::Stored {
                request,
                first_block,
                parent,
                hashes,
                tokens,
                repeated,
            } => Event::Stored {
                request,
                first_block,
                parent,
                hashes: &self.hashes[hashes.0 as usize..hashes.1 as usize],
                tokens: &self.tokens[tokens.0 as usize..tokens.1 as usize],
                repeated,
            },
            Entry::Removed(hash) => Event::Removed { hash },
            Entry::Cleared => Event::Cleared,
        })
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.hashes.clear();
        self.tokens.clear();
    }

    pub(crate) fn removed(&mut self, hash: BlockHash) {
        self.entries.push(Entry::Removed(hash));
    }

    pub(crate) fn cleared(&mut self) {
        self.entries.push(Entry::Cleared);
    }

    pub(crate) fn stored(
        &mut self,
        request: RequestId,
        first_block: u32,
        parent: Option<BlockHash>,
        hashes: impl Iterator<Item = BlockHash>,
        tokens: impl Iterator<Item = u32>,
        repeated: bool,
    ) {
        let from = (self.hashes.len() as u32, self.tokens.len() as u32);
        self.hashes.extend(hashes);
        self.tokens.extend(tokens);
        self.entries.push(Entry::Stored {
            request,
            first_block,
            parent,
            hashes: (from.0, self.hashes.len() as u32),
            tokens: (from.1, self.tokens.len() as u32),
            repeated,
        });
    }
}
