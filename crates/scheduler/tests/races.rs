//! The two races of the pick, explored over interleavings. Run with `--features shuttle`.
#![cfg(feature = "shuttle")]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::sync::Arc;

use lmetric_prefix::{BlockKey, BlockSize, Chain, KeySeed, KeySpace, SharedIndex};
use lmetric_scheduler::{
    EndpointId, EndpointSpec, HotspotAction, Outcome, PickRequest, Prompt, Scheduler, SchedulerConfig,
    SpaceSpec, Time,
};
use rand::{SeedableRng, rngs::SmallRng};
use shuttle::{check_dfs, check_random, thread};

const BLOCKS: usize = 3;

fn spec(last: u8) -> EndpointSpec {
    EndpointSpec {
        address: ([10, 0, 0, last], 8_000).into(),
        rank: None,
        group: "g".into(),
        block_size: BlockSize::new(16),
    }
}

fn prompt() -> Prompt {
    let block_size = BlockSize::new(16).unwrap();
    let root = KeySeed::new(1).root(&KeySpace {
        group: "g",
        lora: None,
        salt: None,
        block_size,
    });
    let tokens: Vec<u32> = (0..16 * BLOCKS as u32 + 5).collect();
    let chain = Arc::new(Chain::new(root, block_size, &tokens));
    let space = SpaceSpec {
        group: "g".into(),
        block_size,
    };
    Prompt {
        tokens: tokens.len() as u32,
        chains: vec![(space, chain)],
    }
}

fn request(prompts: &[Prompt]) -> PickRequest<'_> {
    PickRequest {
        request_id: "r",
        model: "m",
        prompts,
        weight: 1,
        estimated: false,
        subset: None,
        lora: None,
        session: None,
    }
}

struct House {
    scheduler: Scheduler,
    index: Arc<SharedIndex>,
}

fn house() -> Arc<House> {
    let index = Arc::new(SharedIndex::default());
    let config = SchedulerConfig {
        hotspot: HotspotAction::Off,
        decisions: 0,
        ..SchedulerConfig::default()
    };
    let scheduler = Scheduler::new(config, Arc::clone(&index));
    Arc::new(House { scheduler, index })
}

impl House {
    fn add(&self, last: u8) -> EndpointId {
        let id = self.scheduler.add(spec(last)).unwrap();
        self.scheduler.set_ready(id, true);
        self.scheduler.set_source_live(id, true, Time(0));
        id
    }

    fn pick_hit(&self, seed: u64) -> u64 {
        let prompts = [prompt()];
        let mut rng = SmallRng::seed_from_u64(seed);
        self.scheduler
            .pick(&request(&prompts), Time(1), &mut rng)
            .unwrap()
            .hit_tokens
    }

    /// One block moves from the overlay to the index.
    fn apply(&self, id: EndpointId, block: usize, index_first: bool) {
        let chain = &prompt().chains[0].1.clone();
        let parent = block.checked_sub(1).map_or(chain.root, |at| chain.keys[at]);
        let pair: (BlockKey, BlockKey) = (parent, chain.keys[block]);
        if index_first {
            self.index.write().insert(id.slot, pair.1);
        }
        thread::yield_now();
        self.scheduler.stored(id.slot, &[pair], Time(1));
        thread::yield_now();
        if !index_first {
            self.index.write().insert(id.slot, pair.1);
        }
    }
}

/// One endpoint fills a prompt block by block while two copies are picked: each copy must see every block, wherever it is.
fn copies_meet_a_filling_endpoint(index_first: bool) {
    let house = house();
    let id = house.add(1);
    house.pick_hit(0);
    let applier = {
        let house = Arc::clone(&house);
        thread::spawn(move || {
            for block in 0..BLOCKS {
                house.apply(id, block, index_first);
            }
        })
    };
    let copies: Vec<_> = (1..3)
        .map(|seed| {
            let house = Arc::clone(&house);
            thread::spawn(move || house.pick_hit(seed))
        })
        .collect();
    for copy in copies {
        assert_eq!(copy.join().unwrap(), 16 * BLOCKS as u64, "a hit was lost");
    }
    applier.join().unwrap();
}

#[test]
fn a_block_that_an_event_moves_into_the_index_is_never_lost_to_a_pick() {
    check_random(|| copies_meet_a_filling_endpoint(true), 20_000);
    check_dfs(|| copies_meet_a_filling_endpoint(true), Some(20_000));
}

#[test]
#[should_panic(expected = "a hit was lost")]
fn the_exploration_finds_the_loss_when_the_overlay_goes_first() {
    check_random(|| copies_meet_a_filling_endpoint(false), 20_000);
}

/// An endpoint goes, its slot is cleared and taken by another one, while requests are picked and end.
fn an_endpoint_goes_while_requests_are_picked() {
    let house = house();
    let old = house.add(1);
    let steady = house.add(2);
    let remover = {
        let house = Arc::clone(&house);
        thread::spawn(move || {
            house.scheduler.remove(old, Time(1));
            thread::yield_now();
            house.index.write().clear(old.slot);
            thread::yield_now();
            house.scheduler.free_slot(old.slot);
            house.add(3)
        })
    };
    let requests: Vec<_> = (0..2)
        .map(|seed| {
            let house = Arc::clone(&house);
            thread::spawn(move || {
                let prompts = [prompt()];
                let mut rng = SmallRng::seed_from_u64(seed);
                let pick = house
                    .scheduler
                    .pick(&request(&prompts), Time(1), &mut rng)
                    .unwrap();
                thread::yield_now();
                house.scheduler.first_output(pick.reservation, Time(2));
                let released = house.scheduler.release(pick.reservation, Outcome::Done, Time(2));
                assert!(!house.scheduler.release(pick.reservation, Outcome::Done, Time(2)));
                (pick.endpoint, released)
            })
        })
        .collect();
    let ended: Vec<_> = requests.into_iter().map(|one| one.join().unwrap()).collect();
    let new = remover.join().unwrap();
    assert_eq!(new.slot, old.slot);
    assert_ne!(new.generation, old.generation);
    let closed = ended.iter().filter(|(_, released)| !released).count() as u64;
    for (endpoint, released) in &ended {
        assert!([old, steady, new].contains(endpoint));
        assert!(
            *released || *endpoint == old,
            "only a removed endpoint's requests are closed for them"
        );
    }
    assert_eq!(house.scheduler.open(), 0);
    for view in house.scheduler.endpoints(Time(3)) {
        assert_eq!(
            (view.q, view.bs, view.optimistic_blocks),
            (0, 0, 0),
            "stale load at {}",
            view.address
        );
    }
    let counters = house.scheduler.counters();
    assert_eq!((counters.released[0], counters.released[4]), (2 - closed, closed));
}

#[test]
fn a_pick_never_leaves_load_on_an_endpoint_that_took_the_slot_later() {
    check_random(an_endpoint_goes_while_requests_are_picked, 20_000);
    check_dfs(an_endpoint_goes_while_requests_are_picked, Some(20_000));
}
