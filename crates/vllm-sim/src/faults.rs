//! Making engines misbehave at run time: one fault at a time per engine, a new one ends the one before.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::driver::Command;
use crate::fault::{Fault, FaultAt, FaultError};
use crate::fleet::framing;
use crate::publisher::{Publisher, Sockets};
use crate::site::{EventSource, Site};

/// How long a dead engine core still has an API server.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Time for the answer to `POST /sim/fault` to leave before its connection may be closed.
const ANSWER_FIRST: Duration = Duration::from_millis(20);

/// Applies faults. Cheap to clone.
#[derive(Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

struct Shared {
    sites: Vec<Arc<Site>>,
    /// One fault at a time per engine; the number tells whether it is still the one that was begun.
    turns: Vec<(tokio::sync::Mutex<()>, AtomicU64)>,
    memory: Mutex<Vec<Vec<u8>>>,
    exit: watch::Sender<Option<i32>>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl Faults {
    pub(crate) fn new(sites: Vec<Arc<Site>>, tasks: TaskTracker, cancel: CancellationToken) -> Self {
        let turns = sites.iter().map(|_| Default::default()).collect();
        let exit = watch::Sender::new(None);
        Self {
            shared: Arc::new(Shared {
                sites,
                turns,
                memory: Mutex::default(),
                exit,
                tasks,
                cancel,
            }),
        }
    }

    /// The exit code that the process was told to end with; waits for it.
    pub async fn exit_code(&self) -> i32 {
        let mut exit = self.shared.exit.subscribe();
        match exit.wait_for(Option::is_some).await {
            Ok(code) => code.unwrap_or(1),
            Err(_) => std::future::pending().await,
        }
    }

    /// Begins a fault after its delay and ends it after its time. `engine` is whom the fault means if it does
    /// not say.
    pub fn plan(&self, fault: FaultAt, engine: u32) -> Result<(), FaultError> {
        let FaultAt {
            engine: named,
            fault,
            after,
            lasts,
            at_start: _,
        } = fault;
        let engine = named.unwrap_or(engine) as usize;
        let sites = self.shared.sites.len();
        if engine >= sites {
            return Err(FaultError::no_engine(engine, sites));
        }
        let faults = self.clone();
        self.shared
            .tasks
            .spawn(self.shared.cancel.clone().run_until_cancelled_owned(async move {
                tokio::time::sleep(after.max(ANSWER_FIRST)).await;
                let number = faults.begin(engine, fault).await;
                if let Some(lasts) = lasts {
                    tokio::time::sleep(lasts).await;
                    faults.end(engine, number).await;
                }
            }));
        Ok(())
    }

    /// [`Faults::plan`] before the ports are served: a slow start is in force at once.
    pub(crate) fn plan_at_start(&self, fault: FaultAt) -> Result<(), FaultError> {
        if fault.at_start {
            let index = fault.engine.unwrap_or(0);
            let site = self.shared.sites.get(index as usize);
            site.ok_or_else(|| FaultError::no_engine(index as usize, self.shared.sites.len()))?
                .set_fault(Fault::Refuse);
        }
        self.plan(fault, 0)
    }

    /// Gives memory back.
    pub(crate) fn stop(&self) {
        self.shared.memory.lock().clear();
    }

    async fn begin(&self, engine: usize, fault: Fault) -> u64 {
        let Shared {
            sites, turns, exit, ..
        } = &*self.shared;
        let (turn, number) = &turns[engine];
        let _turn = turn.lock().await;
        let site = &sites[engine];
        if !matches!(fault, Fault::DropEvents { .. }) {
            self.undo(site).await;
        }
        tracing::info!(engine, ?fault, "fault begins");
        match &fault {
            Fault::None => {}
            Fault::Refuse | Fault::Status(_) => site.set_fault(fault),
            Fault::Hang => {
                site.set_fault(fault);
                Self::freeze(site, true);
            }
            Fault::Crash => {
                site.set_fault(fault);
                Self::crash(site).await;
            }
            Fault::Die => {
                site.set_fault(fault);
                Self::crash(site).await;
                tokio::time::sleep(LAST_WORDS).await;
                site.set_fault(Fault::Crash);
            }
            Fault::ExitCode(code) => {
                exit.send_replace(Some(*code));
            }
            Fault::GrowMemory { rate, limit } => {
                self.grow(*rate, *limit, number.load(Ordering::Relaxed) + 1, engine);
            }
            Fault::DropEvents { count } => {
                for lane in site.lanes.clone() {
                    site.driver().send(Command::DropBatches { lane, count: *count });
                }
                return number.load(Ordering::Relaxed);
            }
        }
        number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends the fault that has this number, if it is still on.
    async fn end(&self, engine: usize, begun: u64) {
        let (turn, number) = &self.shared.turns[engine];
        let _turn = turn.lock().await;
        if number.load(Ordering::Relaxed) == begun {
            number.fetch_add(1, Ordering::Relaxed);
            self.undo(&self.shared.sites[engine]).await;
            tracing::info!(engine, "fault ends");
        }
    }

    async fn undo(&self, site: &Arc<Site>) {
        match site.fault() {
            Fault::Hang => Self::freeze(site, false),
            Fault::Crash | Fault::Die => self.revive(site).await,
            _ => {}
        }
        self.shared.memory.lock().clear();
        site.set_fault(Fault::None);
    }

    fn freeze(site: &Site, frozen: bool) {
        for lane in site.lanes.clone() {
            site.driver().send(Command::Freeze { lane, frozen });
        }
    }

    async fn crash(site: &Site) {
        for lane in site.lanes.clone() {
            let (done, wait) = oneshot::channel();
            site.driver().send(Command::Crash { lane, done });
            let _ = wait.await;
        }
    }

    /// Event sockets on the same ports, sequence numbers from 0.
    async fn revive(&self, site: &Site) {
        site.restarted();
        for (rank, source) in site.sources.iter().enumerate() {
            let lane = site.lanes.start + rank;
            let publisher = loop {
                match self.publish(site, *source).await {
                    Ok(publisher) => break publisher,
                    Err(error) => {
                        tracing::warn!(%error, events = %source.events, "ports not taken again yet");
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            };
            site.driver().send(Command::Publish {
                lane,
                publisher: Some(publisher),
            });
        }
    }

    async fn publish(&self, site: &Site, source: EventSource) -> anyhow::Result<Publisher> {
        let sockets = Sockets {
            events: TcpListener::bind(source.events)?,
            replay: TcpListener::bind(source.replay)?,
        };
        Ok(Publisher::start(sockets, framing(site.settings()), &self.shared.tasks).await?)
    }

    fn grow(&self, rate: u64, limit: u64, turn: u64, engine: usize) {
        let faults = self.clone();
        let pieces = 10;
        self.shared
            .tasks
            .spawn(self.shared.cancel.clone().run_until_cancelled_owned(async move {
                let piece = (rate / pieces).max(1);
                let mut taken = 0;
                while taken < limit {
                    tokio::time::sleep(Duration::from_millis(1000 / pieces)).await;
                    if faults.shared.turns[engine].1.load(Ordering::Relaxed) != turn {
                        return;
                    }
                    let take = piece.min(limit - taken);
                    // written to, or the kernel would not give it
                    faults.shared.memory.lock().push(vec![0xA5; take as usize]);
                    taken += take;
                }
            }));
    }
}
