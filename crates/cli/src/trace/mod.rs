//! Request traces: who arrived when, with how many tokens, sharing which prefix. No text is in them.
//!
//! A trace names each prompt's blocks by ids that stand for the block *and everything before it*: two requests
//! share their first k blocks exactly when their first k ids are equal.

mod csv;
mod line;
mod read;
mod schedule;

pub use read::{Recorded, Trace, TraceError, TraceFormat};
pub use schedule::{Arrival, Pacing, schedule};

/// One request of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceRequest {
    /// Line in the file, from 1.
    pub line: u32,
    /// Arrival, seconds since the trace began.
    pub at: f64,
    /// Prompt length.
    pub input_tokens: u32,
    /// Answer length.
    pub output_tokens: u32,
    /// Prefix-chained block ids; the last block may be partial, and a tail shorter than a block may have no id.
    pub blocks: Vec<u64>,
}
