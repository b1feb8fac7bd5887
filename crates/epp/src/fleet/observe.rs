//! What scrapes mean for members, their sources and the ledger.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use lmetric_kvevents::{EventSink, transport::SourceSpec};
use lmetric_scheduler::{ScrapeSample, Time};

use super::{Fleet, Member, Source};
use crate::{
    guard::Doubt,
    scrape::{
        FetchError, Page, Scraped, Target,
        sources::{EventAddress, of_rank},
    },
};

/// Block bound of a source until the engine says how many it has.
const BLOCKS_UNTIL_KNOWN: u32 = 65_536;

impl Doubt for Fleet {
    fn doubt(&self, address: SocketAddr) {
        if let Some(member) = self.members.load().at(address).first() {
            member.target.doubt();
        }
    }
}

impl Scraped for Fleet {
    fn is_busy(&self, target: &Target) -> bool {
        let loads = self.loads.load();
        let members = self.members.load();
        members
            .at(target.address)
            .iter()
            .any(|member| loads.get(&member.id.slot.0).is_some_and(|load| *load > 0))
    }

    fn page(&self, target: &Target, page: &Page, sent: Time, restarted: bool) {
        let now = self.clock.now();
        for member in self.members.load().at(target.address) {
            let Some(metrics) = page.of(member.rank()) else {
                self.refresh_ready(member);
                continue;
            };
            if restarted {
                tracing::info!(engine = %target.address, "the engine's process is a new one");
                member.with_source(Source::restarted);
                member.forget_absence();
            }
            if let (Some(running), Some(waiting)) = (metrics.running, metrics.waiting) {
                let sample = ScrapeSample {
                    sent,
                    running,
                    waiting,
                };
                self.scheduler.scraped(member.id, sample, now);
            }
            if let Some(blocks) = metrics.gpu_blocks {
                member.with_source(|source| source.set_blocks(blocks));
            }
            if let Some(caching) = metrics.prefix_caching {
                self.sink.set_caching(member.id, caching);
            }
            let (blocks, usage) = (metrics.gpu_blocks, metrics.kv_usage);
            member.set_engine(metrics);
            if let Some(size) = member.block_size() {
                self.scheduler.set_block_size(member.id, size);
                if let Some(blocks) = blocks {
                    let room = u64::from(blocks) * u64::from(size.get());
                    self.scheduler.set_kv_tokens(member.id, room);
                    if let Some(usage) = usage.filter(|usage| (0.0..=1.0).contains(usage)) {
                        self.scheduler
                            .set_kv_used(member.id, (usage * room as f64) as u64);
                    }
                }
            }
            self.refresh_ready(member);
        }
    }

    fn no_page(&self, target: &Target) {
        let now = self.clock.now();
        for member in self.members.load().at(target.address) {
            self.scheduler.scraped_without_page(member.id, now);
            self.refresh_ready(member);
        }
    }

    fn failed(&self, target: &Target, error: &FetchError) {
        let now = self.clock.now();
        for member in self.members.load().at(target.address) {
            if *error == FetchError::Unreachable {
                self.scheduler.lost(member.id, now);
            } else {
                let refused = *error == FetchError::Refused;
                self.scheduler.scrape_failed(member.id, refused, now);
            }
            self.refresh_ready(member);
        }
    }

    fn models_changed(&self, target: &Target) {
        if let Some((_, cards)) = target.models() {
            let names: Vec<String> = cards.iter().map(|card| card.id.clone()).collect();
            for member in self.members.load().at(target.address) {
                self.scheduler.set_adapters(member.id, Some(names.clone()));
            }
        }
        self.rebuild_catalog();
    }

    fn wants_sources(&self, target: &Target) -> bool {
        self.members
            .load()
            .at(target.address)
            .iter()
            .any(|member| member.wants_source())
    }

    fn sources(&self, target: &Target, ranks: &BTreeMap<u16, EventAddress>) {
        let members = self.members.load();
        let members = members.at(target.address);
        for member in members.iter().filter(|member| member.wants_source()) {
            let address = match member.rank() {
                Some(rank) => ranks
                    .get(&rank)
                    .cloned()
                    .or_else(|| beside(members, rank))
                    .or_else(|| only(ranks).filter(|_| members.len() == 1)),
                None => only(ranks),
            };
            if let Some(address) = address {
                self.attach(member, address);
            } else {
                tracing::info!(
                    engine = %target.address,
                    rank = member.rank(),
                    published = ranks.len(),
                    "no KV events for this endpoint: its load is followed by rate"
                );
                member.attach_none();
            }
        }
    }
}

/// The one rank that publishes; several behind one endpoint cannot be told apart.
fn only(ranks: &BTreeMap<u16, EventAddress>) -> Option<EventAddress> {
    match ranks.len() {
        1 => ranks.values().next().cloned(),
        _ => None,
    }
}

/// From another rank of the address whose event endpoint was given: ranks follow each other by port.
fn beside(members: &[Arc<Member>], rank: u16) -> Option<EventAddress> {
    members.iter().find_map(|member| {
        let endpoint = member.endpoint();
        let from = endpoint.rank?;
        let events = of_rank(&endpoint.events?, from, rank)?;
        let replay = endpoint.replay.and_then(|replay| of_rank(&replay, from, rank));
        Some(EventAddress { events, replay })
    })
}

impl Fleet {
    /// Starts a member's source.
    pub(super) fn attach(&self, member: &Member, address: EventAddress) {
        let endpoint = member.endpoint();
        let name = match endpoint.rank {
            Some(rank) => format!("{} rank {rank}", endpoint.address),
            None => endpoint.address.to_string(),
        };
        let spec = SourceSpec {
            id: member.id.slot,
            name: name.into(),
            endpoint: address.events,
            replay: address.replay,
            topic: self.topic.clone(),
            rank: endpoint.rank,
            group: member.group.clone(),
            seed: self.seed,
            gpu_blocks: member.engine().gpu_blocks.unwrap_or(BLOCKS_UNTIL_KNOWN),
        };
        let sink: Arc<dyn EventSink> = self.sink.clone();
        member.attach(|| self.starter.start(spec, sink));
    }
}
