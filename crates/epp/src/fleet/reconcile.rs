//! From the discovered set to members, sources and scrapers. Level-driven: each pass compares the latest set
//! with what is, and does what is missing.
//!
//! A slot is freed only after its source has stopped and the index holds nothing of it, so a new endpoint
//! never inherits blocks.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
};

use lmetric_scheduler::EndpointSpec;
use lmetric_telemetry::Tasks;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Fleet, Groups, Member, Members, Source};
use crate::{
    discovery::{Endpoint, EndpointSet},
    metrics::ScrapeMetrics,
    scrape::{EngineClient, ScrapeSettings, Scraper, Target, sources::EventAddress},
};

type Key = (SocketAddr, Option<u16>);

struct Scraping {
    target: Arc<Target>,
    token: CancellationToken,
    started: bool,
}

/// The one who changes the fleet.
pub struct Reconciler {
    fleet: Arc<Fleet>,
    groups: Groups,
    tasks: Tasks,
    client: EngineClient,
    settings: ScrapeSettings,
    metrics: ScrapeMetrics,
    present: BTreeMap<Key, Arc<Member>>,
    scraping: HashMap<SocketAddr, Scraping>,
}

impl Reconciler {
    /// Starts with nothing. `settings` are already divided by the speed.
    pub fn new(
        fleet: Arc<Fleet>,
        groups: Groups,
        tasks: Tasks,
        client: EngineClient,
        settings: ScrapeSettings,
        metrics: ScrapeMetrics,
    ) -> Self {
        Self {
            fleet,
            groups,
            tasks,
            client,
            settings,
            metrics,
            present: BTreeMap::new(),
            scraping: HashMap::new(),
        }
    }

    /// Applies every set that comes, until `token` is cancelled.
    pub async fn run(mut self, mut sets: watch::Receiver<Option<EndpointSet>>, token: CancellationToken) {
        let mut regrouped = self.groups.changes();
        loop {
            let set = sets.borrow_and_update().clone();
            if let Some(set) = set {
                self.apply(&set);
            }
            tokio::select! {
                () = token.cancelled() => return,
                Ok(()) = regrouped.changed() => {}
                changed = sets.changed() => if changed.is_err() {
                    token.cancelled().await;
                    return;
                }
            }
        }
    }

    /// One pass. Clearing what left goes on in tasks of its own.
    pub fn apply(&mut self, set: &[Endpoint]) {
        let wanted: HashMap<Key, &Endpoint> = set
            .iter()
            .map(|endpoint| ((endpoint.address, endpoint.rank), endpoint))
            .collect();
        let mut gone: Vec<Arc<Member>> = Vec::new();
        self.present.retain(|key, member| {
            let stays = wanted.get(key).is_some_and(|endpoint| {
                is_same(&member.endpoint(), endpoint) && self.groups.of(&endpoint.model) == member.group
            });
            if !stays {
                gone.push(member.clone());
            }
            stays
        });
        for member in &gone {
            self.fleet.scheduler.remove(member.id, self.fleet.clock.now());
            self.fleet.sink.dismiss(member.id);
        }
        self.stop_scraping(set);
        for endpoint in set {
            match self.present.get(&(endpoint.address, endpoint.rank)) {
                Some(member) => self.update(member, endpoint),
                None => self.add(endpoint),
            }
        }
        self.publish();
        for member in gone {
            self.clear(member);
        }
        self.start_scraping();
    }

    fn add(&mut self, endpoint: &Endpoint) {
        let group = self.groups.of(&endpoint.model);
        let spec = EndpointSpec {
            address: endpoint.address,
            rank: endpoint.rank,
            group: group.clone(),
            block_size: endpoint.block_size,
        };
        let Some(id) = self.fleet.scheduler.add(spec) else {
            tracing::error!(engine = %endpoint.address, "no slot is free for another endpoint (65,536 at most)");
            return;
        };
        let target = self
            .scraping
            .entry(endpoint.address)
            .or_insert_with(|| Scraping {
                target: Arc::new(Target::new(endpoint.address)),
                token: self.tasks.token().child_token(),
                started: false,
            })
            .target
            .clone();
        let names = target
            .models()
            .map(|(_, cards)| cards.iter().map(|card| card.id.clone()).collect());
        self.fleet.sink.admit(id);
        let member = Arc::new(Member::new(
            id,
            group,
            target,
            endpoint.clone(),
            self.fleet.pods.clone(),
        ));
        self.fleet.scheduler.set_adapters(id, names);
        self.fleet.refresh_ready(&member);
        if let Some(events) = endpoint.events.clone() {
            let address = EventAddress {
                events,
                replay: endpoint.replay.clone(),
            };
            self.fleet.attach(&member, address);
        }
        self.present.insert((endpoint.address, endpoint.rank), member);
        tracing::info!(engine = %endpoint.address, rank = endpoint.rank, slot = id.slot.0, "endpoint added");
    }

    /// Same address and source; the rest may have changed.
    fn update(&self, member: &Arc<Member>, endpoint: &Endpoint) {
        let before = member.set_endpoint(endpoint.clone());
        if before == *endpoint {
            return;
        }
        if before.incarnation != endpoint.incarnation {
            tracing::info!(engine = %endpoint.address, rank = endpoint.rank, "engine restarted");
            member.with_source(Source::restarted);
            member.forget_absence();
            self.fleet.scheduler.restarted(member.id, self.fleet.clock.now());
        }
        if let Some(size) = member.block_size() {
            self.fleet.scheduler.set_block_size(member.id, size);
        }
        self.fleet.refresh_ready(member);
    }

    /// Stops the member's source, clears the index, then frees the slot.
    fn clear(&self, member: Arc<Member>) {
        let fleet = self.fleet.clone();
        tracing::info!(engine = %member.target.address, slot = member.id.slot.0, "endpoint removed");
        self.tasks
            .spawn_child("clear", &CancellationToken::new(), async move {
                if let Some(source) = member.close() {
                    source.stop().await;
                }
                fleet.sink.clear(member.id.slot);
                fleet.scheduler.free_slot(member.id.slot);
            });
    }

    fn publish(&self) {
        let mut members = Members::default();
        for member in self.present.values() {
            members.by_slot.insert(member.id.slot.0, member.clone());
            members
                .by_address
                .entry(member.target.address)
                .or_default()
                .push(member.clone());
        }
        self.fleet.members.store(Arc::new(members));
        self.fleet.rebuild_catalog();
        // who asked to be drained before he was a member was not told of
        for member in self.present.values() {
            self.fleet.refresh_ready(member);
        }
    }

    fn stop_scraping(&mut self, set: &[Endpoint]) {
        let addresses: HashSet<SocketAddr> = set.iter().map(|endpoint| endpoint.address).collect();
        self.scraping.retain(|address, scraping| {
            let stays = addresses.contains(address);
            if !stays {
                scraping.token.cancel();
            }
            stays
        });
    }

    fn start_scraping(&mut self) {
        let present: HashSet<SocketAddr> = self.present.keys().map(|(address, _)| *address).collect();
        for (address, scraping) in &mut self.scraping {
            if scraping.started || !present.contains(address) {
                continue;
            }
            scraping.started = true;
            let scraper = Scraper {
                target: scraping.target.clone(),
                listener: self.fleet.clone(),
                client: self.client.clone(),
                settings: self.settings.clone(),
                clock: self.fleet.clock,
                metrics: self.metrics.clone(),
            };
            self.tasks.spawn_child("scrape", &scraping.token, scraper.run());
        }
    }
}

/// Whether the change from `before` to `now` leaves the endpoint what it was: same pod, same model, same publisher.
fn is_same(before: &Endpoint, now: &Endpoint) -> bool {
    let Endpoint {
        address,
        rank,
        model,
        events,
        replay,
        block_size: _,
        incarnation: _,
        terminating: _,
        ready: _,
        pod,
    } = before;
    *address == now.address
        && *rank == now.rank
        && *model == now.model
        && *events == now.events
        && *replay == now.replay
        && *pod == now.pod
}
