//! vLLM KV-cache events: wire decoding, the source state machine, and the ZeroMQ transport.
//!
//! [`wire`] reads the messages, [`Source`] turns them into operations on the prefix index; both are pure and know
//! no sockets. [`transport`] runs one task per publisher that feeds its `Source` and hands what comes of it to an
//! [`EventSink`].

mod op;
mod source;
#[cfg(feature = "transport")]
pub mod transport;
pub mod wire;

pub use op::{Adoption, EventSink, Op, SourceState};
pub use source::{Adopt, Command, Generation, Outcome, ReplayId, Source, SourceConfig, SourceStats};
