//! Runs that were read and not applied yet.
//!
//! What a block's neighbours in the books are is known from its hash alone, and all of them are far from each other in
//! memory. Runs are therefore applied some blocks at a time, after what they need was fetched together.

use lmetric_prefix::{BlockKey, ContentHash};

/// Blocks that are enough to be fetched together.
const ENOUGH: usize = 64;
/// Blocks that room is kept for between batches: a source is one of many, and a longer run pays for its own.
const KEPT: usize = 128;

/// What a run says beside its blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// KV cache group.
    pub(super) group: u16,
    pub(super) follows: Follows,
}

/// What a run follows, as it was read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Follows {
    /// The block of this hash in the same group.
    Hash(u64),
    /// Nothing; the root of its key space.
    Root {
        root: BlockKey,
        /// The engine does not show salts.
        unseen_salt: bool,
    },
}

/// Consecutive blocks of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) head: Head,
    pub(super) hashes: &'a [u64],
    pub(super) contents: &'a [ContentHash],
}

/// Runs in their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heads: Vec<(Head, usize)>,
    hashes: Vec<u64>,
    contents: Vec<ContentHash>,
}

impl Queue {
    /// Adds a run of as many blocks as have hashes. `contents` appends the contents of these blocks and says what the
    /// run follows.
    pub(super) fn push(
        &mut self,
        group: u16,
        hashes: impl Iterator<Item = u64>,
        contents: impl FnOnce(&mut Vec<ContentHash>) -> Follows,
    ) {
        let before = self.hashes.len();
        self.hashes.extend(hashes);
        let follows = contents(&mut self.contents);
        self.heads
            .push((Head { group, follows }, self.hashes.len() - before));
    }

    /// Whether it is time to apply them.
    pub(super) fn is_enough(&self) -> bool {
        self.hashes.len() >= ENOUGH
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Hashes of all blocks.
    pub(super) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let (mut hashes, mut contents) = (&self.hashes[..], &self.contents[..]);
        self.heads.iter().map(move |&(head, blocks)| {
            let run = Run {
                head,
                hashes: &hashes[..blocks],
                contents: &contents[..blocks],
            };
            (hashes, contents) = (&hashes[blocks..], &contents[blocks..]);
            run
        })
    }

    pub(super) fn clear(&mut self) {
        self.heads.clear();
        self.hashes.clear();
        self.contents.clear();
        self.heads.shrink_to(KEPT);
        self.hashes.shrink_to(KEPT);
        self.contents.shrink_to(KEPT);
    }
}
