//! The ZeroMQ transport: one task per source. Every task owns its sockets and its state machine, so that no
//! publisher can hold up another.

#[cfg(feature = "fuzzing")]
mod hear;
mod replays;
mod socket;
mod task;
mod zmtp;

use std::sync::Arc;

#[cfg(feature = "fuzzing")]
pub use hear::{Heard, hear};
use lmetric_prefix::{BlockKey, BlockSize, KeySeed, SourceId};
pub use replays::{Replays, Timing};
use task::{Request, Settings, Shown, Task};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

pub use crate::SourceStats;
use crate::{EventSink, Op, SourceState};

/// Requests that wait for a source's task; more are dropped, which only costs accuracy.
const REQUESTS: usize = 256;

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

/// A running source. Dropping it stops the task and clears nothing; call [`SourceHandle::stop`] to clear.
#[derive(Debug)]
pub struct SourceHandle {
    id: SourceId,
    sink: SinkRef,
    cancel: CancellationToken,
    task: Option<JoinHandle<()>>,
    requests: mpsc::Sender<Request>,
    settings: watch::Sender<Settings>,
    shown: watch::Receiver<Shown>,
}

/// A sink that can be left out of debug output.
struct SinkRef(Arc<dyn EventSink>);

impl std::fmt::Debug for SinkRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventSink")
    }
}

impl Drop for SourceHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl SourceHandle {
    /// Stops the task, waits for it, and clears the source in the sink. Nothing is applied after that.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        if let Some(task) = self.task.take() {
            // a task that panicked has stopped too
            let _ = task.await;
        }
        self.sink.0.apply(self.id, &[Op::Clear]);
    }

    /// The engine restarted (new container): clear, forget sequence numbers, reconnect.
    pub fn restarted(&self) {
        self.settings.send_modify(|settings| settings.restarts += 1);
    }

    /// `num_gpu_blocks` became known.
    pub fn set_blocks(&self, gpu_blocks: u32) {
        self.settings.send_if_modified(|settings| {
            std::mem::replace(&mut settings.gpu_blocks, gpu_blocks) != gpu_blocks
        });
    }

    /// These leading keys of a finished prompt are held (the engine said so in `cached_tokens`).
    pub fn infer(&self, keys: Vec<BlockKey>) {
        self.request(Request::Infer(keys));
    }

    /// A request that asks for `kv_cache_report_mode` goes to this engine: its re-stores add no reference. To be
    /// called once for each engine request, before it is sent.
    pub fn expect_report(&self, keys: Vec<BlockKey>) {
        self.request(Request::ExpectReport(keys));
    }

    /// Now.
    pub fn state(&self) -> SourceState {
        self.shown.borrow().state
    }

    /// Now.
    pub fn stats(&self) -> SourceStats {
        self.shown.borrow().stats.clone()
    }

    /// Tokens per block, once an event said so.
    pub fn block_size(&self) -> Option<BlockSize> {
        self.shown.borrow().block_size
    }

    fn request(&self, request: Request) {
        if self.requests.try_send(request).is_err() {
            tracing::debug!(slot = self.id.0, "source is busy: a hint is dropped");
        }
    }
}

/// Starts the task of one source, within a tokio runtime. At most as many replays run at once as `replays` allows.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a source owns its token, as callers expect of a spawn"
)]
pub fn spawn(
    spec: SourceSpec,
    sink: Arc<dyn EventSink>,
    replays: &Replays,
    cancel: CancellationToken,
) -> SourceHandle {
    let (requests, requested) = mpsc::channel(REQUESTS);
    let (settings, set) = watch::channel(Settings {
        restarts: 0,
        gpu_blocks: spec.gpu_blocks,
    });
    let (show, shown) = watch::channel(Shown {
        state: SourceState::Down,
        stats: SourceStats::default(),
        block_size: None,
    });
    let id = spec.id;
    let cancel = cancel.child_token();
    let task = Task::new(
        spec,
        Arc::clone(&sink),
        replays.clone(),
        cancel.clone(),
        requested,
        set,
        show,
    );
    SourceHandle {
        id,
        sink: SinkRef(sink),
        cancel,
        task: Some(tokio::spawn(task.run())),
        requests,
        settings,
        shown,
    }
}
