//! A model of one vLLM engine: batching, prefix cache, H20 step time. Pure, virtual time.
//!
//! [`Engine`] schedules as vLLM v1 does (chunked prefill under a token budget, first come first served,
//! preemption of the youngest by recomputation), keeps a prefix cache of hash-chained blocks that is evicted
//! least recently used and tail first, and says for each step how long it takes, which tokens come out and
//! what changed in the cache. Time is passed in and never read; the same calls give the same answers.
//!
//! ```
//! use lmetric_engine::{BlockHash, Engine, EngineConfig, Gpu, Model, Output, Prompt, Request, RequestId};
//! use std::{sync::Arc, time::Duration};
//!
//! let config = EngineConfig::new(Gpu::h20(), Model::qwen2_7b(), 0.85);
//! let mut engine = Engine::new(config.clone())?;
//! let tokens: Arc<[u32]> = (0..2048).collect();
//! engine.add(
//!     Request {
//!         id: RequestId(1),
//!         prompt: Prompt::tokens(tokens, BlockHash::root(0, None, None), config.block_size),
//!         output: Output::Drawn { seed: 1, vocabulary: Arc::default() },
//!         max_output: 2,
//!         report_reused: false,
//!     },
//!     Duration::ZERO,
//! )?;
//! let prefill = engine.step(Duration::ZERO).expect("there is work");
//! assert!((0.221..0.223).contains(&prefill.duration.as_secs_f64()));
//! let decode = engine.step(prefill.ends()).expect("one token is missing");
//! assert!(decode.tokens[0].finished.is_some());
//! # Ok::<(), lmetric_engine::EngineError>(())
//! ```

mod config;
mod engine;
mod events;
mod hardware;
mod hash;
mod pool;
#[cfg(test)]
mod properties;
mod request;
mod stats;
mod step_time;

pub use config::EngineConfig;
pub use engine::{Engine, EngineError, StepOutcome, TokenOut};
pub use events::{Event, Events};
pub use hardware::{Experts, Gpu, Model};
pub use hash::BlockHash;
pub use request::{Finished, Output, Prompt, Request};
pub use stats::{Counters, Load};
pub use step_time::{Chunk, SimulatedSteps, StepTime, StepWork};

/// One engine request, as its caller names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);
