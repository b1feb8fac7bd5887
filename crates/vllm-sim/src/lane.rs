//! One data-parallel rank: an engine, what is in flight, and who waits for it. Owned by the driver thread.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lmetric_engine::{Counters, Engine, Load, Request, RequestId, StepOutcome};
use parking_lot::Mutex;

use crate::clock::ModelClock;
use crate::histogram::Histograms;
use crate::inbox::{Failure, Inbox, Progress};
use crate::publisher::Publisher;
use crate::site::Adapter;
use crate::wire::{Encoder, Extra};

/// One engine request with its way back.
#[derive(Debug)]
pub(crate) struct Job {
    /// For the engine.
    pub(crate) request: Request,
    /// Who waits.
    pub(crate) inbox: Arc<Inbox>,
    /// Which of its choices.
    pub(crate) choice: u32,
    /// Shown in events.
    pub(crate) labels: Arc<Labels>,
}

/// What events and metrics show of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    /// Adapter.
    pub(crate) adapter: Option<Adapter>,
    /// Cache salt.
    pub(crate) salt: Option<String>,
    /// Session id.
    pub(crate) session: Option<String>,
    /// Ends before its limit would: counted as `stop`.
    pub(crate) stops: bool,
}

/// What others see of a rank: its state after the last step, as vLLM's scheduler statistics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Queues and cache.
    pub(crate) load: Load,
    /// Requests that came in since, shown as waiting.
    pub(crate) unreported: u32,
    /// Sums.
    pub(crate) counters: Counters,
    /// Distinct blocks that can be hit.
    pub(crate) cached_blocks: u64,
    /// Finished requests that ended before their limit.
    pub(crate) stopped: u64,
    /// Distributions, in model seconds.
    pub(crate) histograms: Histograms,
    /// Adapters of requests that the engine has taken up, comma-separated.
    pub(crate) running_adapters: String,
    /// Adapters of requests that it has not.
    pub(crate) waiting_adapters: String,
    /// How late the last step was seen to end, and the latest ever, real time.
    pub(crate) lateness: (Duration, Duration),
    /// Batches that the publisher's queue had no room for.
    pub(crate) lost_batches: u64,
    /// How often this rank began with a cold cache.
    pub(crate) incarnation: u64,
}

impl Snapshot {
    /// Requests queued.
    pub(crate) fn waiting(&self) -> u32 {
        self.load.waiting + self.unreported
    }
}

/// See the module documentation.
pub(crate) struct Lane {
    rank: u32,
    engine: Engine,
    encoder: Encoder,
    event_delay: Duration,
    publisher: Option<Publisher>,
    arrivals: VecDeque<(Duration, Job)>,
    jobs: HashMap<RequestId, (Duration, Job)>,
    outcome: StepOutcome,
    payload: Option<Bytes>,
    in_flight: bool,
    frozen: bool,
    drop_batches: u64,
    last_end: Duration,
    snapshot: Arc<Mutex<Snapshot>>,
    /// Requests that no step has ended with yet: shown as waiting.
    unreported: u32,
    stopped: u64,
    incarnation: u64,
    adapters: bool,
}

impl Lane {
    pub(crate) fn new(
        rank: u32,
        engine: Engine,
        encoder: Encoder,
        event_delay: Duration,
        publisher: Option<Publisher>,
        snapshot: Arc<Mutex<Snapshot>>,
    ) -> Self {
        Self {
            rank,
            engine,
            encoder,
            event_delay,
            publisher,
            arrivals: VecDeque::new(),
            jobs: HashMap::new(),
            outcome: StepOutcome::default(),
            payload: None,
            in_flight: false,
            frozen: false,
            drop_batches: 0,
            unreported: 0,
            last_end: Duration::ZERO,
            snapshot,
            stopped: 0,
            incarnation: 0,
            adapters: false,
        }
    }

    pub(crate) fn submit(&mut self, at: Duration, jobs: Vec<Job>) {
        self.adapters |= jobs.iter().any(|job| job.labels.adapter.is_some());
        self.unreported += jobs.len() as u32;
        self.arrivals.extend(jobs.into_iter().map(|job| (at, job)));
        self.note_queue();
    }

    pub(crate) fn abort(&mut self, ids: &[RequestId]) {
        for id in ids {
            self.jobs.remove(id);
            self.engine.abort(*id);
        }
        let queued = self.arrivals.len();
        self.arrivals.retain(|(_, job)| !ids.contains(&job.request.id));
        self.unreported = self
            .unreported
            .saturating_sub((queued - self.arrivals.len()) as u32);
        self.note_queue();
    }

    pub(crate) fn reset_prefix_cache(&mut self, preempt: bool) -> bool {
        self.engine.reset_prefix_cache(preempt)
    }

    pub(crate) fn freeze(&mut self, frozen: bool, now: Duration) {
        if self.frozen && !frozen {
            // what was in flight took this long
            self.outcome.duration = self.outcome.duration.max(now.saturating_sub(self.outcome.began));
            self.last_end = self.last_end.max(now);
        }
        self.frozen = frozen;
    }

    pub(crate) fn drop_batches(&mut self, count: u64) {
        self.drop_batches += count;
    }

    /// Everything in memory is gone; requests fail.
    pub(crate) fn crash(&mut self) {
        for (_, job) in self.jobs.values().chain(&self.arrivals) {
            job.inbox.fail(Failure::Died);
        }
        self.jobs.clear();
        self.arrivals.clear();
        self.publisher = None;
        self.in_flight = false;
        self.payload = None;
        self.frozen = false;
        self.drop_batches = 0;
        let config = self.engine.config().clone();
        self.engine = Engine::new(config).expect("the configuration made an engine before");
        self.stopped = 0;
        self.unreported = 0;
        self.incarnation += 1;
        *self.snapshot.lock() = Snapshot {
            incarnation: self.incarnation,
            ..Snapshot::default()
        };
    }

    pub(crate) fn publish_with(&mut self, publisher: Option<Publisher>) {
        self.publisher = publisher;
    }

    /// Model time at which [`Lane::turn`] has something to do.
    pub(crate) fn due(&self) -> Option<Duration> {
        if self.frozen {
            return None;
        }
        if self.in_flight {
            return Some(self.outcome.ends());
        }
        if !self.engine.is_idle() {
            return Some(self.last_end);
        }
        self.arrivals.front().map(|(at, _)| (*at).max(self.last_end))
    }

    /// Ends the step in flight, if any, and begins the next one at the model time that was due.
    pub(crate) fn turn(&mut self, clock: &ModelClock) {
        let Some(at) = self.due() else { return };
        if self.in_flight {
            self.complete(at, clock);
        }
        while self.arrivals.front().is_some_and(|(arrived, _)| *arrived <= at) {
            let Some((arrived, job)) = self.arrivals.pop_front() else {
                break;
            };
            self.take_up(arrived, job);
        }
        if self.engine.step_into(at, &mut self.outcome) {
            self.in_flight = true;
            self.payload = if self.publisher.is_some() {
                self.encode(clock)
            } else {
                None
            };
        }
    }

    fn take_up(&mut self, arrived: Duration, job: Job) {
        match self.engine.add(job.request.clone(), arrived) {
            Ok(()) => {
                self.jobs.insert(job.request.id, (arrived, job));
            }
            Err(error) => job.inbox.fail(Failure::Refused(error.to_string())),
        }
    }

    fn complete(&mut self, at: Duration, clock: &ModelClock) {
        self.in_flight = false;
        self.last_end = at;
        let due = clock.instant(at);
        let late = Instant::now().saturating_duration_since(due);
        let mut snapshot = self.snapshot.lock();
        for token in &self.outcome.tokens {
            let Some((arrived, job)) = self.jobs.get(&token.id) else {
                continue;
            };
            let progress = Progress {
                produced: token.index + 1,
                finished: token.finished,
            };
            job.inbox.deliver(job.choice, progress);
            if token.index == 0 {
                snapshot.histograms.first_token(*arrived, at);
            }
            if let Some(finished) = token.finished {
                snapshot
                    .histograms
                    .finished(at, job.request.prompt.len(), token.index + 1, &finished);
                self.stopped += u64::from(job.labels.stops);
                self.jobs.remove(&token.id);
            }
        }
        snapshot.counters = *self.engine.counters();
        self.unreported = self.arrivals.len() as u32;
        snapshot.load = self.engine.load();
        snapshot.unreported = self.unreported;
        snapshot.cached_blocks = self.engine.cached_blocks().len() as u64;
        snapshot.stopped = self.stopped;
        snapshot.lateness = (late, snapshot.lateness.1.max(late));
        if self.adapters {
            snapshot.running_adapters = names(self.jobs.values());
            snapshot.waiting_adapters = names(self.arrivals.iter());
        }
        if let Some(publisher) = &mut self.publisher {
            if let Some(payload) = self.payload.take() {
                let dropped = self.drop_batches > 0;
                self.drop_batches = self.drop_batches.saturating_sub(1);
                publisher.send(payload, due + self.event_delay.div_f64(clock.speed()), dropped);
            }
            snapshot.lost_batches = publisher.lost();
        }
        drop(snapshot);
    }

    /// The payload carries the wall time at which the step will end.
    fn encode(&self, clock: &ModelClock) -> Option<Bytes> {
        let ahead = clock
            .instant(self.outcome.ends())
            .saturating_duration_since(Instant::now());
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + ahead;
        self.encoder
            .batch(wall.as_secs_f64(), &self.outcome.events, self.rank, |id| {
                self.jobs.get(&id).map_or_else(Extra::default, |(_, job)| {
                    let Labels {
                        adapter,
                        salt,
                        session,
                        stops: _,
                    } = &*job.labels;
                    Extra {
                        adapter: adapter.as_ref().map(|(number, name)| (*number, &**name)),
                        salt: salt.as_deref(),
                        session: session.as_deref(),
                    }
                })
            })
    }

    /// Between steps the engine's own figures are shown at once; during a step only what came in meanwhile.
    fn note_queue(&mut self) {
        let mut snapshot = self.snapshot.lock();
        if !self.in_flight {
            self.unreported = self.arrivals.len() as u32;
            snapshot.load = self.engine.load();
        }
        snapshot.unreported = self.unreported;
    }
}

fn names<'a>(jobs: impl Iterator<Item = &'a (Duration, Job)>) -> String {
    let names: BTreeSet<&str> = jobs
        .filter_map(|(_, job)| job.labels.adapter.as_ref().map(|(_, name)| &**name))
        .collect();
    names.into_iter().collect::<Vec<_>>().join(",")
}
