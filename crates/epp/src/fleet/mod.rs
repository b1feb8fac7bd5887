//! The endpoints that take part now.
//!
//! [`Fleet`] is what others read: a snapshot that is replaced as a whole, so a pick takes no lock here. The
//! [`Reconciler`] is the only writer; scrapers report through [`Fleet`]'s implementation of
//! [`crate::scrape::Scraped`].

mod catalog;
mod drain;
mod groups;
mod member;
mod observe;
mod reconcile;
mod source;

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::stream::{self, StreamExt};
use lmetric_prefix::{KeySeed, SourceId};
use lmetric_scheduler::Scheduler;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use catalog::{Catalog, Listed};
pub use groups::Groups;
pub use member::Member;
pub use reconcile::Reconciler;
pub use source::{Source, StartSource, ZmqSources};

use crate::{clock::Clock, discovery::PodRegistry, events::IndexSink, scrape::ModelsReader};

/// A list of models younger than this may say that a model is unknown.
const FRESH: Duration = Duration::from_secs(30);
/// Between two forced reads of all lists, so that requests for nonsense do not become a storm of reads.
const FORCED_APART: Duration = Duration::from_millis(500);
/// Names of models in the answer to a request for an unknown one.
const NAMES: usize = 20;
/// Lists read at once.
const READS_AT_ONCE: usize = 32;

/// Members by slot and by address. Cheap to clone behind its `Arc`.
#[derive(Default)]
pub struct Members {
    by_slot: HashMap<u16, Arc<Member>>,
    by_address: BTreeMap<SocketAddr, Vec<Arc<Member>>>,
}

impl Members {
    /// The member that has the slot now.
    pub fn slot(&self, slot: SourceId) -> Option<&Arc<Member>> {
        self.by_slot.get(&slot.0)
    }

    /// Members that share an address.
    pub fn at(&self, address: SocketAddr) -> &[Arc<Member>] {
        self.by_address.get(&address).map_or(&[], Vec::as_slice)
    }

    /// All, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.by_address.values().flatten()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.by_slot.len()
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.by_slot.is_empty()
    }
}

/// Everything about the endpoints that requests, scrapers and the admin pages share.
pub struct Fleet {
    scheduler: Arc<Scheduler>,
    sink: Arc<IndexSink>,
    starter: Arc<dyn StartSource>,
    clock: Clock,
    seed: KeySeed,
    topic: String,
    members: ArcSwap<Members>,
    catalog: ArcSwap<Catalog>,
    loads: ArcSwap<HashMap<u16, u64>>,
    models: ModelsReader,
    pods: Arc<PodRegistry>,
    forced: tokio::sync::Mutex<Option<Instant>>,
    rebuilding: Mutex<()>,
    refreshing: Mutex<()>,
}

/// What a request's model name means here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// An engine lists it.
    Listed(Listed),
    /// Nobody is known to list it, but somebody may.
    Perhaps,
    /// Every engine said lately that it does not serve it; these names are served.
    Unknown(Vec<String>),
}

/// What a [`Fleet`] is made of.
pub struct FleetParts {
    /// The ledger.
    pub scheduler: Arc<Scheduler>,
    /// Applies events.
    pub sink: Arc<IndexSink>,
    /// Starts sources.
    pub starter: Arc<dyn StartSource>,
    /// The process's clock.
    pub clock: Clock,
    /// Seed of all keys.
    pub seed: KeySeed,
    /// Topic prefix of all sources.
    pub topic: String,
    /// Reads lists of models.
    pub models: ModelsReader,
    /// The pods that may ask to be drained; empty without Kubernetes.
    pub pods: Arc<PodRegistry>,
}

impl Fleet {
    /// An empty fleet.
    pub fn new(parts: FleetParts) -> Self {
        let FleetParts {
            scheduler,
            sink,
            starter,
            clock,
            seed,
            topic,
            models,
            pods,
        } = parts;
        Self {
            scheduler,
            sink,
            starter,
            clock,
            seed,
            topic,
            members: ArcSwap::default(),
            catalog: ArcSwap::default(),
            loads: ArcSwap::default(),
            models,
            pods,
            forced: tokio::sync::Mutex::new(None),
            rebuilding: Mutex::new(()),
            refreshing: Mutex::new(()),
        }
    }

    /// Everyone, now.
    pub fn members(&self) -> Arc<Members> {
        self.members.load_full()
    }

    /// The names that engines list.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Moves time-driven state of the ledger on and notes who is busy; called a few times a second.
    pub fn tick(&self) {
        let now = self.clock.now();
        self.scheduler.tick(now);
        let views = self.scheduler.endpoints(now);
        let loads = views
            .into_iter()
            .map(|view| (view.slot, view.bs + view.foreign_bs))
            .collect();
        self.loads.store(Arc::new(loads));
    }

    /// What a model's name means, after one forced read of all lists if nobody is known to serve it.
    pub async fn resolve(&self, model: &str) -> Resolved {
        if let Some(listed) = self.catalog.load().get(model) {
            return Resolved::Listed(listed.clone());
        }
        // an engine whose list cannot be had may serve it whatever the others say: no need to wait for them
        if !self.every_ready(|_| true) {
            return Resolved::Perhaps;
        }
        self.read_all_models().await;
        let catalog = self.catalog.load();
        if let Some(listed) = catalog.get(model) {
            return Resolved::Listed(listed.clone());
        }
        if self.every_ready(|read| read.elapsed() <= FRESH) {
            Resolved::Unknown(catalog.names(NAMES))
        } else {
            Resolved::Perhaps
        }
    }

    /// There is a ready engine, and of each the list of models was read at a time that will do.
    fn every_ready(&self, will_do: impl Fn(Instant) -> bool) -> bool {
        let now = Instant::now();
        let members = self.members.load();
        let mut ready = members.iter().filter(|member| member.is_ready(now)).peekable();
        ready.peek().is_some()
            && ready.all(|member| member.target.models().is_some_and(|(read, _)| will_do(read)))
    }

    /// Reads the lists of all ready engines, once for all who wait.
    async fn read_all_models(&self) {
        let mut forced = self.forced.lock().await;
        if forced.is_some_and(|at| at.elapsed() < FORCED_APART) {
            return;
        }
        let now = Instant::now();
        let members = self.members.load_full();
        let targets = members
            .by_address
            .values()
            .filter_map(|members| members.iter().find(|member| member.is_ready(now)))
            .map(|member| member.target.clone());
        stream::iter(targets)
            .for_each_concurrent(READS_AT_ONCE, |target| async move {
                self.models.read(&target, self).await;
            })
            .await;
        *forced = Some(Instant::now());
    }

    /// Compiles the catalog anew from the lists read last.
    fn rebuild_catalog(&self) {
        let _one_at_a_time = self.rebuilding.lock();
        let members = self.members.load();
        let lists = members.iter().filter_map(|member| {
            let (_, cards) = member.target.models()?;
            Some((&member.group, cards))
        });
        self.catalog.store(Arc::new(Catalog::of(lists)));
    }

    /// Tells the scheduler whether a member may get requests.
    fn refresh_ready(&self, member: &Member) {
        // looking and telling are one step: else a look from before a drain could be told after it
        let _one_at_a_time = self.refreshing.lock();
        self.scheduler
            .set_ready(member.id, member.is_ready(Instant::now()));
    }
}
