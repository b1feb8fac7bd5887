//! The picker's inside without its sockets: scheduler, index, and a source for each endpoint.

mod churn;

use std::sync::Arc;

use lmetric_epp::{clock::Clock, events::IndexSink};
use lmetric_kvevents::{EventSink, Generation, Outcome, Source, SourceConfig};
use lmetric_prefix::{BlockSize, Chain, KeySeed, KeySpace, SharedIndex, SourceId, TokenId};
use lmetric_scheduler::{Pick, PickRequest, Prompt, Scheduler, SchedulerConfig, SpaceSpec, Time};
use rand::rngs::SmallRng;

use crate::{
    payload::{Run, batch},
    workload::{BLOCK, Stored, Workload},
};

const GROUP: &str = "m";
/// As an engine of some hundred gigabytes says it.
const GPU_BLOCKS: u32 = 4_000_000;

/// Endpoints that are ready and whose events are believed.
pub struct Fleet {
    /// The ledger: detector, overlay and decision ring are on, as configured by default.
    pub scheduler: Arc<Scheduler>,
    /// What they hold.
    pub index: Arc<SharedIndex>,
    sink: IndexSink,
    seed: KeySeed,
    space: SpaceSpec,
}

impl Fleet {
    /// So many endpoints that hold nothing.
    pub fn new(endpoints: u16) -> Self {
        let fleet = Self::empty(Clock::start());
        for number in 0..endpoints {
            fleet.join(u32::from(number)).expect("a free slot");
        }
        fleet
    }

    /// Nobody yet. What events say is dated by this clock.
    pub fn empty(clock: Clock) -> Self {
        let index = Arc::new(SharedIndex::default());
        let scheduler = Arc::new(Scheduler::new(SchedulerConfig::default(), index.clone()));
        Self {
            sink: IndexSink::new(index.clone(), scheduler.clone(), clock),
            scheduler,
            index,
            seed: KeySeed::new(7),
            space: SpaceSpec {
                group: Arc::from(GROUP),
                block_size: BlockSize::new(BLOCK as u32).expect("not zero"),
            },
        }
    }

    /// A source whose messages are applied from the first one on.
    pub fn source(&self) -> Feed {
        let mut source = Source::new(SourceConfig {
            group: self.space.group.clone(),
            seed: self.seed,
            rank: None,
            replay: false,
            gpu_blocks: GPU_BLOCKS,
        });
        let generation = source.connected(&mut Outcome::default());
        Feed {
            source,
            generation,
            next: 0,
            outcome: Outcome::default(),
        }
    }

    /// A message of `endpoint` comes and is applied: decoded, hashed, indexed, told to the ledger.
    pub fn receive(&self, endpoint: u16, feed: &mut Feed, payload: &[u8]) {
        let source = SourceId(endpoint);
        let outcome = &mut feed.outcome;
        outcome.ops.clear();
        let mut adopt = |contents: &[_]| self.sink.adopt(source, contents);
        feed.source
            .live(feed.generation, feed.next, payload, &mut adopt, outcome);
        feed.next += 1;
        self.sink.apply(source, &outcome.ops);
    }

    /// All events of a workload come, one in a message.
    pub fn fill(&self, workload: &Workload, feeds: &mut [Feed]) {
        for event in &workload.events {
            let payload = payload(workload, event);
            self.receive(event.endpoint, &mut feeds[usize::from(event.endpoint)], &payload);
        }
    }

    /// Hash, look up, score, reserve.
    pub fn pick(&self, tokens: &[TokenId], now: Time, rng: &mut SmallRng) -> Pick {
        let root = self.seed.root(&KeySpace {
            group: GROUP,
            lora: None,
            salt: None,
            block_size: self.space.block_size,
        });
        let chain = Chain::new(root, self.space.block_size, tokens);
        let prompt = Prompt {
            tokens: tokens.len() as u32,
            chains: vec![(self.space.clone(), Arc::new(chain))],
        };
        let request = PickRequest {
            request_id: "5f0c5a3e-8f0e-4c5e-9a51-1c7a3b1f0d11",
            model: GROUP,
            prompts: std::slice::from_ref(&prompt),
            weight: 1,
            estimated: false,
            subset: None,
            lora: None,
            session: None,
        };
        self.scheduler
            .pick(&request, now, rng)
            .expect("somebody is ready")
    }
}

/// One publisher's messages.
pub struct Feed {
    source: Source,
    generation: Generation,
    next: u64,
    /// Kept from one message to the next, as the picker keeps it.
    outcome: Outcome,
}

/// The message that holds this event alone.
pub fn payload(workload: &Workload, event: &Stored) -> Vec<u8> {
    let conversation = &workload.conversations[event.conversation];
    batch(&[Run {
        parent: event
            .from
            .checked_sub(1)
            .map(|before| conversation.hashes[before]),
        hashes: &conversation.hashes[event.from..event.to],
        tokens: &conversation.tokens[event.from * BLOCK..event.to * BLOCK],
    }])
}
