//! The engine model in real time behind vLLM's own interfaces: OpenAI HTTP, /metrics, KV events over ZeroMQ.
//!
//! [`Fleet`] runs many engines in one process, each on its own loopback address. One thread ([`driver`]) lives
//! through all their steps in model time; HTTP (hyper) hands it requests and gets token counts back; a
//! publisher per rank sends KV events. Model time runs `--speed` times as fast as real time.

pub mod args;
mod clock;
mod driver;
pub mod fault;
mod faults;
mod fleet;
mod histogram;
mod http;
mod inbox;
mod lane;
mod listen;
mod metrics;
pub mod publisher;
pub mod serve;
mod site;
mod text;
pub mod wire;

pub use args::Args;
pub use faults::Faults;
pub use fleet::{Fleet, StartError};
pub use site::Site;
pub use text::TextError;
