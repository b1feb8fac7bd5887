//! What a source's events come to: operations on the index, in order.

use lmetric_prefix::{BlockKey, ContentHash, SourceId};

/// One change of what a source holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The block `key`, which follows `parent` (the root key for a first block), was stored. Sent for every
    /// accepted store, also of a block already held: the ledger reads progress from it.
    Store {
        /// Key of the block before, or the root.
        parent: BlockKey,
        /// Key of the block.
        key: BlockKey,
    },
    /// A block that was announced in an earlier batch, when nobody knew what is before it, found its place: it is held
    /// and follows `parent`, but nothing was computed now.
    Adopt {
        /// Key of the block before.
        parent: BlockKey,
        /// Key of the block.
        key: BlockKey,
    },
    /// A block that is held by inference (no engine hash): nothing was computed.
    Infer {
        /// Key of the block.
        key: BlockKey,
    },
    /// The last reference to `key` is gone.
    Remove {
        /// Key of the block.
        key: BlockKey,
    },
    /// Everything that the source held is gone.
    Clear,
    /// From here on the source has holes in its chains (`false`) or has none (`true`).
    Gapless(bool),
}

impl Op {
    /// The block that it is about, if it is about one.
    pub fn key(&self) -> Option<BlockKey> {
        match *self {
            Self::Store { key, .. }
            | Self::Adopt { key, .. }
            | Self::Infer { key }
            | Self::Remove { key } => Some(key),
            Self::Clear | Self::Gapless(_) => None,
        }
    }
}

/// How much a source's stream can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceState {
    /// Every event since the engine's start (or since a clear) is applied.
    Live,
    /// Applied from somewhere in the middle: what is indexed is true, but more may be held.
    Partial,
    /// A gap is being repaired.
    Stale,
    /// No connection.
    Down,
}

/// Where an orphan run belongs, learnt from an open reservation whose blocks have the same contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// Key before the run's first block (the reservation's root when the run is at the start).
    pub parent: BlockKey,
    /// Keys before it, in order: held by inference.
    pub prefix: Vec<BlockKey>,
}

/// Who applies events. Implementations write the index first and tell the scheduler after.
pub trait EventSink: Send + Sync + 'static {
    /// Applies operations of one source in order. Never blocks for long.
    fn apply(&self, source: SourceId, ops: &[Op]);
    /// The source's state changed.
    fn state_changed(&self, source: SourceId, state: SourceState);
    /// Looks for an open reservation on this source that has blocks with exactly these contents in a row.
    fn adopt(&self, source: SourceId, contents: &[ContentHash]) -> Option<Adoption>;
}
