//! The task of one source: sockets on one side, the state machine and the sink on the other.

use std::sync::Arc;

use lmetric_prefix::{BlockKey, BlockSize};
use rand::Rng;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    SourceSpec, Timing,
    replays::{Pace, Replayed, Replays, Running},
    socket::{Message, SocketError, Subscription, knock},
    zmtp::Fault,
};
use crate::{
    Command, EventSink, Generation, Outcome, Source, SourceConfig, SourceState, SourceStats, source::Adopt,
};

/// What the rest of the picker may ask of a running source.
#[derive(Debug)]
pub(super) enum Request {
    Infer(Vec<BlockKey>),
    ExpectReport(Vec<BlockKey>),
}

/// What must never be lost on the way to the task: only the latest matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) restarts: u64,
    pub(super) gpu_blocks: u32,
}

/// What the task shows.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) state: SourceState,
    pub(super) stats: SourceStats,
    pub(super) block_size: Option<BlockSize>,
}

/// Operations that room is kept for from one message to the next.
const KEPT_OPS: usize = 1_024;

pub(super) struct Task {
    spec: SourceSpec,
    sink: Arc<dyn EventSink>,
    replays: Replays,
    timing: Timing,
    cancel: CancellationToken,
    requests: mpsc::Receiver<Request>,
    settings: watch::Receiver<Settings>,
    shown: watch::Sender<Shown>,
    source: Source,
    restarts: u64,
    pace: Pace,
    failures: u32,
}

/// Why a subscription ended.
enum Ended {
    Cancelled,
    /// The state machine wants another one.
    Resubscribe,
    Lost(SocketError),
}

impl Task {
    pub(super) fn new(
        spec: SourceSpec,
        sink: Arc<dyn EventSink>,
        replays: Replays,
        cancel: CancellationToken,
        requests: mpsc::Receiver<Request>,
        settings: watch::Receiver<Settings>,
        shown: watch::Sender<Shown>,
    ) -> Self {
        let source = Source::new(SourceConfig {
            group: Arc::clone(&spec.group),
            seed: spec.seed,
            rank: spec.rank,
            replay: spec.replay.is_some(),
            gpu_blocks: spec.gpu_blocks,
        });
        Self {
            timing: replays.timing(),
            spec,
            sink,
            replays,
            cancel,
            requests,
            settings,
            shown,
            source,
            restarts: 0,
            pace: Pace::new(),
            failures: 0,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let connect = Subscription::connect(&self.spec.endpoint, &self.spec.topic, self.timing.patience);
            let connected = tokio::select! {
                () = self.cancel.cancelled() => return,
                connected = connect => connected,
            };
            let ended = match connected {
                Ok(subscription) => self.follow(subscription).await,
                Err(error) => Ended::Lost(error),
            };
            match ended {
                Ended::Cancelled => return,
                Ended::Resubscribe => {}
                Ended::Lost(error) => self.lost(&error),
            }
            if !self.wait().await {
                return;
            }
        }
    }

    /// Says once that a publisher is out of reach, not at each attempt.
    fn lost(&mut self, error: &SocketError) {
        if self.failures == 0 {
            warn!(source = %self.spec.name, %error, "no KV events");
        } else {
            debug!(source = %self.spec.name, attempt = self.failures, %error, "still no KV events");
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// Waits before the next attempt to connect. False when cancelled. The engine may restart meanwhile.
    async fn wait(&mut self) -> bool {
        let ceiling = self.timing.reconnect * (1_u32 << self.failures.min(6)).min(50);
        let end = Instant::now() + ceiling.mul_f64(rand::rng().random_range(0.5..1.0));
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => return false,
                () = sleep_until(end) => return true,
                changed = self.settings.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    let mut out = Outcome::default();
                    self.new_settings(&mut out);
                    self.carry_out(&mut out);
                }
                Some(request) = self.requests.recv() => {
                    let mut out = Outcome::default();
                    self.answer(request, &mut out);
                    self.carry_out(&mut out);
                }
            }
        }
    }

    async fn follow(&mut self, mut subscription: Subscription) -> Ended {
        tokio::select! {
            () = self.cancel.cancelled() => return Ended::Cancelled,
            () = sleep(self.timing.settle) => {}
        }
        let mut out = Outcome::default();
        let generation = self.source.connected(&mut out);
        let mut running: Option<Running> = None;
        let mut idle = self.idle_from_now();
        let mut probe = Probe::default();
        info!(source = %self.spec.name, endpoint = %self.spec.endpoint, "subscribed to KV events");
        loop {
            match self.carry_out(&mut out) {
                None => {}
                Some(Command::Resubscribe) => {
                    self.source.disconnected(generation);
                    self.show();
                    return Ended::Resubscribe;
                }
                Some(Command::Replay { from, id }) => running = self.start_replay(from, id),
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Ended::Cancelled,
                changed = self.settings.changed() => {
                    if changed.is_err() {
                        return Ended::Cancelled;
                    }
                    self.new_settings(&mut out);
                }
                Some(request) = self.requests.recv() => self.answer(request, &mut out),
                replayed = next_of(&mut running) => {
                    let ended = !matches!(replayed, Replayed::Message(Message::Batch(..)));
                    let id = running.as_ref().map(|running| running.id);
                    if ended {
                        running = None;
                    }
                    let failed = matches!(replayed, Replayed::Failed(_));
                    if let Some(id) = id {
                        self.replayed(id, replayed, &mut out);
                    }
                    if ended && probe.deaf(failed, self.source.stats().last_seq) {
                        // the replay knows of messages that the subscription never brought, or nobody answers
                        self.carry_out(&mut out);
                        let error = SocketError::new(&self.spec.endpoint, Fault::Closed);
                        return self.give_up(generation, error);
                    }
                    idle = self.idle_from_now();
                }
                message = subscription.receive() => {
                    idle = self.idle_from_now();
                    probe = Probe::default();
                    match message {
                        Ok(Message::Batch(seq, payload)) => {
                            self.failures = 0;
                            let (sink, id) = (&self.sink, self.spec.id);
                            let adopt: &mut Adopt<'_> = &mut |contents| sink.adopt(id, contents);
                            self.source.live(generation, seq, &payload, adopt, &mut out);
                        }
                        Ok(Message::End | Message::Malformed) => self.source.malformed(),
                        Err(error) => return self.give_up(generation, error),
                    }
                }
                () = sleep_until(idle) => {
                    idle = self.idle_from_now();
                    if self.spec.replay.is_none() {
                        if let Err(error) = knock(&self.spec.endpoint, self.timing.patience).await {
                            return self.give_up(generation, error);
                        }
                    } else if running.is_none() {
                        probe = Probe::asked(self.source.stats().last_seq);
                        self.source.probe(&mut out);
                    }
                }
            }
        }
    }

    fn give_up(&mut self, generation: Generation, error: SocketError) -> Ended {
        self.source.disconnected(generation);
        self.show();
        Ended::Lost(error)
    }

    fn start_replay(&mut self, from: u64, id: crate::ReplayId) -> Option<Running> {
        let endpoint = self.spec.replay.as_deref()?;
        let delay = self.pace.next();
        debug!(source = %self.spec.name, from, ?delay, "replay");
        Some(Running::start(&self.replays, endpoint, from, id, delay))
    }

    fn replayed(&mut self, id: crate::ReplayId, replayed: Replayed, out: &mut Outcome) {
        let (sink, slot) = (&self.sink, self.spec.id);
        let adopt: &mut Adopt<'_> = &mut |contents| sink.adopt(slot, contents);
        match replayed {
            Replayed::Message(Message::Batch(seq, payload)) => {
                self.source.replayed(id, seq, &payload, adopt, out);
            }
            Replayed::Message(Message::End) => {
                self.failures = 0;
                self.source.replay_ended(id, adopt, out);
            }
            Replayed::Message(Message::Malformed) => {
                self.source.malformed();
                self.source.replay_failed(id, adopt, out);
            }
            Replayed::Failed(error) => {
                warn!(source = %self.spec.name, %error, "replay of KV events failed");
                self.source.replay_failed(id, adopt, out);
            }
        }
    }

    fn new_settings(&mut self, out: &mut Outcome) {
        let Settings { restarts, gpu_blocks } = *self.settings.borrow_and_update();
        self.source.set_blocks(gpu_blocks);
        if restarts != self.restarts {
            self.restarts = restarts;
            self.source.restarted(out);
        }
    }

    fn answer(&mut self, request: Request, out: &mut Outcome) {
        match request {
            Request::Infer(keys) => self.source.infer(&keys, out),
            Request::ExpectReport(keys) => self.source.expect_report(keys),
        }
    }

    fn idle_from_now(&self) -> Instant {
        Instant::now() + self.timing.idle.mul_f64(rand::rng().random_range(0.8..1.2))
    }

    /// Hands the operations to the sink and shows what changed; returns the command.
    fn carry_out(&self, out: &mut Outcome) -> Option<Command> {
        let Outcome { ops, command } = out;
        if !ops.is_empty() {
            self.sink.apply(self.spec.id, ops);
            ops.clear();
            ops.shrink_to(KEPT_OPS);
        }
        self.show();
        command.take()
    }

    fn show(&self) {
        let state = self.source.state();
        let before = self
            .shown
            .send_replace(Shown {
                state,
                stats: self.source.stats(),
                block_size: self.source.block_size(),
            })
            .state;
        if before != state {
            info!(source = %self.spec.name, ?before, now = ?state, "KV events");
            self.sink.state_changed(self.spec.id, state);
        }
    }
}

/// A question whether the publisher is still there.
#[derive(Default)]
struct Probe {
    asked: bool,
    last_seq: Option<u64>,
}

impl Probe {
    fn asked(last_seq: Option<u64>) -> Self {
        Self {
            asked: true,
            last_seq,
        }
    }

    /// Whether the answer shows that the subscription is dead. A live message would have ended the probe.
    fn deaf(&mut self, failed: bool, last_seq: Option<u64>) -> bool {
        std::mem::take(&mut self.asked) && (failed || last_seq != self.last_seq)
    }
}

async fn next_of(running: &mut Option<Running>) -> Replayed {
    match running {
        Some(running) => running.next().await,
        None => std::future::pending().await,
    }
}
