//! Launches Envoy, engines and pickers on loopback, talks to them, and breaks them. For tests and the demo; nothing of lmetric links it.
//!
//! Every stage (one Envoy, one picker, some engines) lives in a `/24` of the loopback network of its own ([`Loopback`]), so ports are
//! never searched for and stages run side by side. Children stay in the caller's process group: what ends the caller from a terminal
//! (or `timeout`) ends them, and every handle kills its process when it is dropped. Their output goes to files that are printed when
//! a test fails.

mod admin;
mod browser;
mod client;
#[cfg(feature = "kubernetes")]
pub mod cluster;
mod engines;
mod envoy;
#[cfg(feature = "ext-proc")]
pub mod ext_proc;
#[cfg(feature = "kubernetes")]
pub mod fake_api;
mod loopback;
mod mirror;
mod picker;
mod process;
mod stage;
mod traffic;
mod wait;

pub use admin::{Admin, EndpointState};
pub use browser::{Browser, Look, NoBrowser, Tab};
pub use client::{Answer, Client, SseStream, chat, completion, token_completion};
pub use engines::{EngineState, Engines, EnginesOptions};
pub use envoy::{BodyMode, Envoy, EnvoyConfig, Plug};
pub use loopback::{Loopback, LoopbackError};
pub use mirror::{Answered, Asked, Mirror};
pub use picker::{Picker, PickerOptions};
pub use process::{Process, Signal, Tool, ToolError};
pub use stage::{Stage, StageOptions};
pub use traffic::{Failure, Phase, complete_stream};
pub use wait::{TimedOut, eventually, poll, wait_until};
