//! The ZeroMQ transport: one task per source. INTERFACE SKELETON.

use std::sync::Arc;

use lmetric_prefix::{BlockKey, BlockSize, KeySeed, SourceId};
use tokio_util::sync::CancellationToken;

use crate::{EventSink, SourceState};

/// How to reach and bound one source.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    /// Index slot.
    pub id: SourceId,
    /// For logs: `ip:port` and rank.
    pub name: Arc<str>,
    /// PUB endpoint, e.g. `tcp://10.0.0.7:5557`.
    pub endpoint: String,
    /// ROUTER endpoint for replay, if the engine offers it.
    pub replay: Option<String>,
    /// Topic prefix to subscribe to; empty for all.
    pub topic: String,
    /// Data-parallel rank expected in the batches, if it matters.
    pub rank: Option<u16>,
    /// Tokenizer group of the key space.
    pub group: Arc<str>,
    /// Seed of all keys.
    pub seed: KeySeed,
    /// Block bound until [`SourceHandle::set_blocks`] (65,536).
    pub gpu_blocks: u32,
}

pub use crate::SourceStats;

/// A running source. Dropping it stops the task and clears nothing; call [`SourceHandle::stop`] to clear.
pub struct SourceHandle {}

impl SourceHandle {
    /// Stops the task, waits for it, and clears the source in the sink.
    pub async fn stop(self) {
        unimplemented!()
    }
    /// The engine restarted (new container): clear, forget sequence numbers, reconnect.
    pub fn restarted(&self) {
        unimplemented!()
    }
    /// `num_gpu_blocks` became known.
    pub fn set_blocks(&self, gpu_blocks: u32) {
        let _ = gpu_blocks;
        unimplemented!()
    }
    /// These leading keys of a finished prompt are held (the engine said so in `cached_tokens`).
    pub fn infer(&self, keys: Vec<BlockKey>) {
        let _ = keys;
        unimplemented!()
    }
    /// A request that asks for `kv_cache_report_mode` goes to this engine: its re-stores add no reference.
    pub fn expect_report(&self, keys: Vec<BlockKey>) {
        let _ = keys;
        unimplemented!()
    }
    /// Now.
    pub fn state(&self) -> SourceState {
        unimplemented!()
    }
    /// Now.
    pub fn stats(&self) -> SourceStats {
        unimplemented!()
    }
    /// Tokens per block, once an event said so.
    pub fn block_size(&self) -> Option<BlockSize> {
        unimplemented!()
    }
}

/// Starts the task of one source. At most four replays run at once per [`Replays`].
pub fn spawn(
    spec: SourceSpec,
    sink: Arc<dyn EventSink>,
    replays: &Replays,
    cancel: CancellationToken,
) -> SourceHandle {
    let _ = (spec, sink, replays, cancel);
    unimplemented!()
}

/// The picker-wide limit on replays.
#[derive(Clone, Debug)]
pub struct Replays {}

impl Replays {
    /// At most `limit` at once.
    pub fn new(limit: usize) -> Self {
        let _ = limit;
        unimplemented!()
    }
}
