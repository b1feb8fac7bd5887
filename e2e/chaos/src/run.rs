//! The run: one step of the plan after the other, with everything watched.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use lmetric_testkit::cluster::{Cluster, pool_path};
use lmetric_testkit::poll;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::fault::{Fault, Pool};
use crate::fleet::{Fleet, NAMESPACE};
use crate::inject::Aimed;
use crate::invariants::logs::Logs;
use crate::invariants::restarts::Restarts;
use crate::invariants::{Rule, ledgers, objects, readiness};
use crate::journal::{Facts, Journal, say};
use crate::load::{Book, Load};
use crate::plan::{Plan, Step};
use crate::{decisions, report};

/// The slowest recovery is that of a container that was killed before: the kubelet waits for 10 s, then 20 s, 40 s, 80 s; and a rollout of
/// four engines, each drained.
const RECOVERY: Duration = Duration::from_mins(3);
/// Until Kubernetes shows what was done.
const NOTICE: Duration = Duration::from_secs(4);
/// A kubelet waits for up to 30 s (client-go's backoff) before it watches again: until then it obeys nobody.
const WATCHES_BACK: Duration = Duration::from_secs(35);
/// A stream, or the minute of silence after which a client gives up, and a stream's length before it.
const DRAIN: Duration = Duration::from_secs(90);
const PROGRESS: Duration = Duration::from_secs(10);
const COLLECTION: Duration = Duration::from_secs(90);

/// What a run is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) only: String,
    pub(crate) out: PathBuf,
}

impl Options {
    /// What will happen.
    pub(crate) fn plan(&self) -> Plan {
        // a filter must not leave a run without faults before its end
        let rounds = if self.only.is_empty() { 1 } else { 30 };
        Plan::new(self.seed, self.length * rounds).only(&self.only)
    }
}

/// A run in progress.
struct Run {
    fleet: Fleet,
    clock: Clock,
    journal: Arc<Journal>,
    load: Load,
    restarts: Restarts,
    /// First fault that may explain a restart seen from now on.
    recent: usize,
}

/// Runs the plan of a seed; what happened.
pub(crate) async fn run(options: &Options) -> anyhow::Result<Facts> {
    let plan = options.plan();
    say(&format!(
        "seed {}, {} s, plan {}",
        plan.seed,
        options.length.as_secs(),
        plan.hash()
    ));
    let fleet = Fleet::start(Cluster::enter().await?).await?;
    let mut targets = Vec::new();
    for pool in Pool::ALL {
        targets.push((pool, fleet.client(pool).await?.to()));
    }
    let (clock, book) = (Clock::start(), Book::default());
    let journal = Arc::new(Journal::new(clock, book.clone()));
    let load = Load::start(&targets, &book, clock, plan.seed);
    let mut watchers = vec![
        tokio::spawn(decisions::watch(fleet.clone(), book.clone())),
        watch_logs(&fleet, &journal),
        tokio::spawn(tick(Arc::clone(&journal))),
    ];
    for (pool, to) in targets {
        let told = Arc::clone(&journal);
        watchers.push(tokio::spawn(readiness::watch(
            fleet.clone(),
            pool,
            to,
            book.clone(),
            clock,
            load.running(),
            move |violation| told.tell(violation),
        )));
    }
    let mut run = Run {
        fleet,
        clock,
        journal: Arc::clone(&journal),
        load,
        restarts: Restarts::default(),
        recent: 0,
    };
    run.restarts.look(&run.fleet.cluster, &[]).await?;
    run.steps(&plan, options.length).await;
    run.pause().await;
    run.collection().await;
    for watcher in watchers {
        watcher.abort();
    }
    journal.judge(true);
    let facts = journal.facts();
    report::write(&options.out, &plan, &facts)?;
    say(&report::table(&plan, &facts));
    Ok(facts)
}

fn watch_logs(fleet: &Fleet, journal: &Arc<Journal>) -> JoinHandle<()> {
    let told = Arc::clone(journal);
    let logs = Logs::new(fleet.cluster.state());
    tokio::spawn(logs.watch(move |line| told.violation(Rule::Panic, line)))
}

async fn tick(journal: Arc<Journal>) {
    loop {
        tokio::time::sleep(PROGRESS).await;
        journal.judge(false);
        journal.weigh();
        say(&journal.progress());
    }
}

impl Run {
    async fn steps(&mut self, plan: &Plan, length: Duration) {
        for step in &plan.steps {
            tokio::time::sleep(Duration::from_secs(step.calm.into())).await;
            if self.clock.now().since(crate::clock::At::default()) >= length {
                return;
            }
            let first = self.journal.faults();
            if let Err(error) = self.step(step).await {
                self.journal
                    .violation(Rule::Harness, format!("{}: {error:#}", step.fault));
            }
            self.recover(match step.fault {
                Fault::StopApi { .. } => WATCHES_BACK,
                _ => NOTICE,
            })
            .await;
            self.examine().await;
            self.renew().await;
            self.recent = first;
            if step.pause {
                self.pause().await;
                self.load.resume();
            }
        }
    }

    async fn step(&self, step: &Step) -> anyhow::Result<()> {
        let aimed = self.fleet.aim(&step.fault).await?;
        let second = match &step.strike {
            Some((fault, after)) => {
                Some((self.fleet.aim(fault).await?, Duration::from_secs((*after).into())))
            }
            None => None,
        };
        let place = self.strike(&aimed).await?;
        let mut left = step.fault.lasts();
        let struck = async {
            if let Some((second, after)) = second {
                tokio::time::sleep(after).await;
                left = left.saturating_sub(after);
                self.strike(&second).await.context("the strike into it")?;
            }
            anyhow::Ok(())
        };
        // whatever became of the second one, the first is undone
        let struck = struck.await;
        tokio::time::sleep(left).await;
        self.fleet.undo(&aimed).await.context("to undo it")?;
        self.journal.undone(place);
        if let Err(error) = self.fleet.put_back(&aimed).await {
            self.journal
                .violation(Rule::Objects, format!("{}: {error:#}", step.fault));
        }
        struck
    }

    async fn strike(&self, aimed: &Aimed) -> anyhow::Result<usize> {
        let happened = self.fleet.strike(aimed, self.clock).await?;
        Ok(self.journal.fault(happened))
    }

    async fn recover(&self, notice: Duration) {
        let began = self.clock.now();
        tokio::time::sleep(notice).await;
        if let Err(error) = self.fleet.wait_whole(RECOVERY).await {
            self.journal.violation(Rule::Recovery, format!("{error:#}"));
        }
        self.journal.settled(self.clock.now().since(began));
    }

    async fn examine(&mut self) {
        match objects::check(&self.fleet).await {
            Ok(wrong) => self.all(Rule::Objects, wrong),
            Err(error) => self.all(Rule::Harness, vec![format!("objects: {error:#}")]),
        }
        let faults = self.journal.faults_from(self.recent);
        match self.restarts.look(&self.fleet.cluster, &faults).await {
            Ok(wrong) => self.all(Rule::Restart, wrong),
            Err(error) => self.all(Rule::Harness, vec![format!("restarts: {error:#}")]),
        }
    }

    /// Replaces pods that were killed often, one after the other, as `kubectl delete` does: at no cost.
    async fn renew(&mut self) {
        let worn = self.restarts.worn();
        for pod in &worn {
            say(&format!(
                "{:>9}  a new pod for {pod}",
                self.clock.now().to_string()
            ));
            let deleted = self.fleet.cluster.delete(pod).await;
            if let Err(error) = deleted {
                self.journal.violation(Rule::Harness, format!("{pod}: {error:#}"));
            }
            self.recover(NOTICE).await;
        }
        if !worn.is_empty() {
            self.examine().await;
        }
    }

    fn all(&self, rule: Rule, wrong: Vec<String>) {
        for text in wrong {
            self.journal.violation(rule, text);
        }
    }

    /// Pauses the load until nothing is under way, and looks into the ledgers.
    async fn pause(&self) {
        self.load.pause();
        if !self.load.drained(DRAIN).await {
            self.journal
                .violation(Rule::Harness, format!("requests are under way after {DRAIN:?}"));
            return;
        }
        match ledgers::check(&self.fleet).await {
            Ok(left) => self.all(Rule::Ledger, left),
            Err(error) => self.all(Rule::Harness, vec![format!("ledgers: {error:#}")]),
        }
        say(&format!("{:>9}  ledgers looked at", self.clock.now().to_string()));
    }

    /// Deletes a pool; nothing of it may stay.
    async fn collection(&self) {
        let pool = Pool::Beta;
        let gone = async {
            self.fleet
                .cluster
                .delete(&pool_path(NAMESPACE, pool.name()))
                .await?;
            poll(
                "all of the pool to be gone",
                COLLECTION,
                Duration::from_secs(1),
                || async {
                    match objects::left_of(&self.fleet, pool).await {
                        Ok(left) if left.is_empty() => Ok(()),
                        Ok(left) => Err(left.join(", ")),
                        Err(error) => Err(format!("{error:#}")),
                    }
                },
            )
            .await?;
            anyhow::Ok(())
        };
        if let Err(error) = gone.await {
            self.journal.violation(Rule::Objects, format!("{error:#}"));
        }
    }
}
