//! The wire format of KV events: a MessagePack batch in the last frame of each message.
//!
//! `[timestamp, [event…], rank]`, the rank optional. An event is a map with a `type` (vLLM ≥ 0.24) or an
//! array that begins with its tag (≤ 0.23). Unknown keys, elements and tags are stepped over and counted.

mod cursor;
mod decode;
mod event;
mod fields;
#[cfg(test)]
mod forms;
mod frames;
#[cfg(test)]
mod tests;
mod values;

pub use decode::{Decoder, Summary, decode_batch};
pub use event::{Batch, BlockExtras, Event, ExtraKey, ExtraKeys, Hash, Hashes, Removed, Stored};
pub use frames::Framed;

/// Longest payload that is looked at.
pub const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;

/// Most hashes in one event; an event with more is skipped.
pub const MAX_HASHES: usize = 65_536;

/// Why a payload is no batch. Events before the broken place have been handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Longer than [`MAX_BATCH_BYTES`].
    #[error(
        "batch of {bytes} bytes is longer than {MAX_BATCH_BYTES}: lower the engine's --max-num-batched-tokens"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not `[timestamp, [event…]]`.
    #[error("payload is no event batch: check that the endpoint is a vLLM KV-event publisher")]
    NotABatch,
    /// Ends in the middle of a value, or promises more values than it has bytes.
    #[error("batch ends in the middle of a value")]
    Truncated,
}
