//! Block keys and the prefix index: which source holds which block. Sync, no I/O.
//!
//! A *block* is `block_size` consecutive tokens whose KV entries an engine caches as a unit. Its
//! [`BlockKey`] is our own 64-bit hash of the block and everything before it, so two prompts share
//! their first `k` keys exactly when they share their first `k` blocks (and model, LoRA and salt).
//! The [`PrefixIndex`] answers, for a chain of keys, how many leading blocks each source holds.

mod index;
mod key;

pub use index::{PrefixIndex, SharedIndex, SourceId};
pub use key::{BlockKey, BlockSize, Chain, ContentHash, KeySeed, KeySpace, TokenId};
