//! What every test here works with: a scheduler, its index, endpoints and prompts.

use std::sync::Arc;

use lmetric_prefix::{BlockKey, BlockSize, Chain, KeySeed, KeySpace, SharedIndex};
use lmetric_scheduler::{
    EndpointId, EndpointSpec, EndpointView, NoEndpoint, Outcome, Pick, PickRequest, Prompt, ReservationId,
    Scheduler, SchedulerConfig, SpaceSpec, Time,
};
use rand::{SeedableRng, rngs::SmallRng};

pub(crate) const GROUP: &str = "qwen2-7b";

pub(crate) struct Bench {
    pub(crate) scheduler: Scheduler,
    pub(crate) index: Arc<SharedIndex>,
    pub(crate) ids: Vec<EndpointId>,
    pub(crate) rng: SmallRng,
    pub(crate) block: u32,
}

pub(crate) fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

pub(crate) fn size(block: u32) -> BlockSize {
    BlockSize::new(block).unwrap()
}

impl Bench {
    /// `count` ready endpoints with live sources.
    pub(crate) fn new(count: u16, block: u32, config: SchedulerConfig) -> Self {
        let index = Arc::new(SharedIndex::default());
        let mut bench = Self {
            scheduler: Scheduler::new(config, Arc::clone(&index)),
            index,
            ids: Vec::new(),
            rng: SmallRng::seed_from_u64(1),
            block,
        };
        for number in 0..count {
            let id = bench.add(number);
            bench.ids.push(id);
        }
        bench
    }

    pub(crate) fn plain(count: u16, block: u32) -> Self {
        Self::new(count, block, SchedulerConfig::default())
    }

    pub(crate) fn add(&mut self, number: u16) -> EndpointId {
        let spec = EndpointSpec {
            address: address(number).parse().unwrap(),
            rank: None,
            group: GROUP.into(),
            block_size: Some(size(self.block)),
        };
        let id = self.scheduler.add(spec).unwrap();
        self.scheduler.set_ready(id, true);
        self.scheduler.set_source_live(id, true, at(0.0));
        id
    }

    /// A prompt of these token ids.
    pub(crate) fn prompt(&self, tokens: &[u32]) -> Prompt {
        let space = SpaceSpec {
            group: GROUP.into(),
            block_size: size(self.block),
        };
        let root = KeySeed::new(42).root(&KeySpace {
            group: GROUP,
            lora: None,
            salt: None,
            block_size: space.block_size,
        });
        let chain = Chain::new(root, space.block_size, tokens);
        Prompt {
            tokens: tokens.len() as u32,
            chains: vec![(space, Arc::new(chain))],
        }
    }

    pub(crate) fn try_pick(&mut self, request: &PickRequest<'_>, now: Time) -> Result<Pick, NoEndpoint> {
        self.scheduler.pick(request, now, &mut self.rng)
    }

    pub(crate) fn pick(&mut self, prompt: &Prompt, now: Time) -> Pick {
        let prompts = std::slice::from_ref(prompt);
        self.try_pick(&ask(prompts), now).unwrap()
    }

    /// A pick that can only go to endpoint `number`.
    pub(crate) fn pick_on(&mut self, number: usize, prompt: &Prompt, now: Time) -> Pick {
        let view = &self.views(now)[number];
        let subset = lmetric_scheduler::Subset(vec![(view.address.ip(), Some(view.address.port()))]);
        let prompts = std::slice::from_ref(prompt);
        let request = PickRequest {
            subset: Some(&subset),
            ..ask(prompts)
        };
        self.try_pick(&request, now).unwrap()
    }

    /// The engine of endpoint `number` stored blocks `from..to` of the prompt: index first, then the ledger.
    pub(crate) fn store(&self, number: usize, prompt: &Prompt, from: usize, to: usize, now: Time) {
        self.index_only(number, prompt, from, to);
        self.tell(number, prompt, from, to, now);
    }

    pub(crate) fn index_only(&self, number: usize, prompt: &Prompt, from: usize, to: usize) {
        let keys = keys(prompt);
        let mut index = self.index.write();
        for key in &keys[from..to] {
            index.insert(self.ids[number].slot, *key);
        }
    }

    pub(crate) fn tell(&self, number: usize, prompt: &Prompt, from: usize, to: usize, now: Time) {
        let pairs = pairs(prompt, from, to);
        self.scheduler.stored(self.ids[number].slot, &pairs, now);
    }

    pub(crate) fn evict(&self, number: usize, prompt: &Prompt, from: usize, to: usize) {
        let mut index = self.index.write();
        for key in &keys(prompt)[from..to] {
            index.remove(self.ids[number].slot, *key);
        }
    }

    pub(crate) fn views(&self, now: Time) -> Vec<EndpointView> {
        self.scheduler.endpoints(now)
    }

    pub(crate) fn q(&self, number: usize, now: Time) -> u64 {
        self.views(now)[number].q
    }

    pub(crate) fn end(&self, id: ReservationId, now: Time) -> bool {
        self.scheduler.release(id, Outcome::Done, now)
    }
}

pub(crate) fn address(number: u16) -> String {
    format!("10.0.{}.{}:8000", number / 250, number % 250 + 1)
}

pub(crate) fn ask(prompts: &[Prompt]) -> PickRequest<'_> {
    PickRequest {
        request_id: "r",
        model: GROUP,
        prompts,
        weight: 1,
        estimated: false,
        subset: None,
        lora: None,
        session: None,
    }
}

pub(crate) fn keys(prompt: &Prompt) -> &[BlockKey] {
    &prompt.chains[0].1.keys
}

/// (parent, key) of blocks `from..to`.
pub(crate) fn pairs(prompt: &Prompt, from: usize, to: usize) -> Vec<(BlockKey, BlockKey)> {
    let chain = &prompt.chains[0].1;
    (from..to)
        .map(|at| {
            let parent = at.checked_sub(1).map_or(chain.root, |before| chain.keys[before]);
            (parent, chain.keys[at])
        })
        .collect()
}

/// `length` token ids that no other `seed` shares.
pub(crate) fn text(seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32)
        .map(|at| seed.wrapping_mul(1_000_003) ^ at)
        .collect()
}
