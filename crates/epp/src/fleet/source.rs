//! One publisher of KV events as the fleet sees it: a trait, so that reconciling is tested without sockets.

use std::{future::Future, pin::Pin, sync::Arc};

use lmetric_kvevents::{
    EventSink, SourceState,
    transport::{self, Replays, SourceHandle, SourceSpec, SourceStats},
};
use lmetric_prefix::{BlockKey, BlockSize};
use tokio_util::sync::CancellationToken;

/// A running source.
pub trait Source: Send + Sync + 'static {
    /// Ends it, waits for it, and clears what it held.
    fn stop(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
    /// The engine restarted.
    fn restarted(&self);
    /// Blocks in the engine's GPU cache.
    fn set_blocks(&self, gpu_blocks: u32);
    /// These leading keys are held, by the engine's own word.
    fn infer(&self, keys: Vec<BlockKey>);
    /// These keys will be announced again without a new reference.
    fn expect_report(&self, keys: Vec<BlockKey>);
    /// How far its events can be trusted.
    fn state(&self) -> SourceState;
    /// Its counters.
    fn stats(&self) -> SourceStats;
    /// Tokens per block, once an event said so.
    fn block_size(&self) -> Option<BlockSize>;
}

/// Starts sources.
pub trait StartSource: Send + Sync + 'static {
    /// Starts one.
    fn start(&self, spec: SourceSpec, sink: Arc<dyn EventSink>) -> Box<dyn Source>;
}

/// Sources over ZeroMQ.
#[derive(Debug)]
pub struct ZmqSources {
    replays: Replays,
    token: CancellationToken,
}

impl ZmqSources {
    /// At most `replays` replays at once; all sources end with `token`.
    pub fn new(replays: usize, token: CancellationToken) -> Self {
        Self {
            replays: Replays::new(replays),
            token,
        }
    }
}

impl StartSource for ZmqSources {
    fn start(&self, spec: SourceSpec, sink: Arc<dyn EventSink>) -> Box<dyn Source> {
        Box::new(ZmqSource(transport::spawn(
            spec,
            sink,
            &self.replays,
            self.token.child_token(),
        )))
    }
}

struct ZmqSource(SourceHandle);

impl Source for ZmqSource {
    fn stop(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.0.stop())
    }

    fn restarted(&self) {
        self.0.restarted();
    }

    fn set_blocks(&self, gpu_blocks: u32) {
        self.0.set_blocks(gpu_blocks);
    }

    fn infer(&self, keys: Vec<BlockKey>) {
        self.0.infer(keys);
    }

    fn expect_report(&self, keys: Vec<BlockKey>) {
        self.0.expect_report(keys);
    }

    fn state(&self) -> SourceState {
        self.0.state()
    }

    fn stats(&self) -> SourceStats {
        self.0.stats()
    }

    fn block_size(&self) -> Option<BlockSize> {
        self.0.block_size()
    }
}
