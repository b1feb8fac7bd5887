//! vLLM KV-cache events: wire decoding, the source state machine, and the ZeroMQ transport.
//!
//! INTERFACE SKELETON of the parts that other crates use; the owner of `kvevents` fills it in.

mod op;
#[cfg(feature = "transport")]
pub mod transport;
pub mod wire;

pub use op::{Adoption, EventSink, Op, SourceState};
