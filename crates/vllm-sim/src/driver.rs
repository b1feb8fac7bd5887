//! The thread that lives through every engine's steps.
//!
//! One thread for all ranks: it sleeps until the next step of any of them ends (or a command comes), ends
//! that step and begins the next at the model time that was due, not at the time it woke up. A late wake-up
//! therefore delays what clients see and never the model's own time line; when several steps are overdue
//! they are caught up in a row, and a stream gets their tokens at once.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lmetric_engine::RequestId;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::clock::ModelClock;
use crate::lane::{Job, Lane};
use crate::publisher::Publisher;

/// Steps of one rank that are caught up before the others and the commands get their turn.
const CATCH_UP: usize = 64;

/// What the HTTP side asks of the driver.
pub(crate) enum Command {
    Submit {
        lane: usize,
        at: Duration,
        jobs: Vec<Job>,
    },
    Abort {
        lane: usize,
        ids: Vec<RequestId>,
    },
    ResetPrefixCache {
        lane: usize,
        preempt: bool,
        done: oneshot::Sender<bool>,
    },
    Freeze {
        lane: usize,
        frozen: bool,
    },
    DropBatches {
        lane: usize,
        count: u64,
    },
    Crash {
        lane: usize,
        done: oneshot::Sender<()>,
    },
    Publish {
        lane: usize,
        publisher: Option<Publisher>,
    },
    Stop,
}

struct Shared {
    commands: Mutex<Vec<Command>>,
    news: Condvar,
}

/// Sends commands to the driver. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DriverHandle {
    shared: Arc<Shared>,
    clock: ModelClock,
}

impl DriverHandle {
    pub(crate) fn clock(&self) -> &ModelClock {
        &self.clock
    }

    pub(crate) fn send(&self, command: Command) {
        self.shared.commands.lock().push(command);
        self.shared.news.notify_one();
    }
}

/// The running thread; stopped and joined when dropped.
pub(crate) struct Driver {
    handle: DriverHandle,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(crate) fn start(lanes: Vec<Lane>, clock: ModelClock) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            commands: Mutex::new(Vec::new()),
            news: Condvar::new(),
        });
        let handle = DriverHandle {
            shared: Arc::clone(&shared),
            clock,
        };
        let thread = std::thread::Builder::new()
            .name("engines".to_owned())
            .spawn(move || drive(lanes, &shared, &clock))?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }

    pub(crate) fn handle(&self) -> DriverHandle {
        self.handle.clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn drive(mut lanes: Vec<Lane>, shared: &Shared, clock: &ModelClock) {
    let mut batch = Vec::new();
    loop {
        let next = lanes.iter().filter_map(Lane::due).min();
        wait(shared, next.map(|at| clock.instant(at)), &mut batch);
        for command in batch.drain(..) {
            if !obey(&mut lanes, command, clock) {
                return;
            }
        }
        let now = clock.now();
        for lane in &mut lanes {
            for _ in 0..CATCH_UP {
                if lane.due().is_none_or(|at| at > now) {
                    break;
                }
                lane.turn(clock);
            }
        }
    }
}

/// Returns when there is a command (all of them are moved to `batch`) or the time has come.
fn wait(shared: &Shared, until: Option<Instant>, batch: &mut Vec<Command>) {
    let mut commands = shared.commands.lock();
    while commands.is_empty() {
        match until {
            Some(until) if shared.news.wait_until(&mut commands, until).timed_out() => break,
            Some(_) => {}
            None => shared.news.wait(&mut commands),
        }
    }
    batch.append(&mut commands);
}

/// False for the last command.
fn obey(lanes: &mut [Lane], command: Command, clock: &ModelClock) -> bool {
    match command {
        Command::Submit { lane, at, jobs } => lanes[lane].submit(at, jobs),
        Command::Abort { lane, ids } => lanes[lane].abort(&ids),
        Command::ResetPrefixCache { lane, preempt, done } => {
            let _ = done.send(lanes[lane].reset_prefix_cache(preempt));
        }
        Command::Freeze { lane, frozen } => lanes[lane].freeze(frozen, clock.now()),
        Command::DropBatches { lane, count } => lanes[lane].drop_batches(count),
        Command::Crash { lane, done } => {
            lanes[lane].crash();
            let _ = done.send(());
        }
        Command::Publish { lane, publisher } => lanes[lane].publish_with(publisher),
        Command::Stop => return false,
    }
    true
}
