use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::{PrefixIndex, SharedIndex, SourceId};
use crate::BlockKey;

/// What the index must say, kept the obvious way.
#[derive(Default)]
struct Model(HashSet<(u16, u64)>);

impl Model {
    fn run_from(&self, source: u16, keys: &[BlockKey], start: usize) -> usize {
        (start..keys.len())
            .find(|&at| !self.0.contains(&(source, keys[at].get())))
            .unwrap_or(keys.len())
            .max(start.min(keys.len()))
    }

    fn held_by(&self, source: u16) -> usize {
        self.0.iter().filter(|(holder, _)| *holder == source).count()
    }
}

/// Keys of a small forest of chains that share prefixes: chain `c` follows chain `c / 2` for a while.
fn chain(which: u64, length: usize) -> Vec<BlockKey> {
    (0..length as u64)
        .map(|depth| {
            let owner = which >> (6 - (depth / 8).min(6));
            BlockKey::from_raw((owner << 32 | depth).wrapping_mul(0x9E37_79B9_7F4A_7C15))
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u64, usize),
    Remove(u16, u64, usize),
    StoreRun(u16, u64, usize),
    Clear(u16),
    ClearSome(u16, usize),
    Holey(u16),
}

fn source() -> impl Strategy<Value = u16> {
    prop_oneof![6 => 0_u16..8, 1 => 60_u16..70, 1 => Just(300), 1 => Just(65_535)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (source(), 0_u64..16, 0_usize..64).prop_map(|(s, c, d)| Step::Insert(s, c, d)),
        4 => (source(), 0_u64..16, 0_usize..64).prop_map(|(s, c, d)| Step::Remove(s, c, d)),
        6 => (source(), 0_u64..16, 1_usize..64).prop_map(|(s, c, n)| Step::StoreRun(s, c, n)),
        1 => source().prop_map(Step::Clear),
        1 => (source(), 1_usize..3_000).prop_map(|(s, n)| Step::ClearSome(s, n)),
        1 => source().prop_map(Step::Holey),
    ]
}

/// Whether every held block of `source` on these chains has all blocks before it held.
fn gapless(model: &Model, source: u16) -> bool {
    (0..16).all(|which| {
        let keys = chain(which, 64);
        let run = model.run_from(source, &keys, 0);
        keys[run..]
            .iter()
            .all(|key| !model.0.contains(&(source, key.get())))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn answers_equal_the_plain_model_with_and_without_holes(steps in prop::collection::vec(step(), 1..120)) {
        let mut index = PrefixIndex::new();
        let mut model = Model::default();
        let mut forced = HashSet::new();
        let mut clearing = HashSet::new();
        for step in steps {
            match step {
                Step::Insert(source, which, depth) => {
                    let key = chain(which, depth + 1)[depth];
                    if clearing.remove(&source) { forced.remove(&source); }
                    prop_assert_eq!(index.insert(SourceId(source), key), model.0.insert((source, key.get())));
                }
                Step::Remove(source, which, depth) => {
                    let key = chain(which, depth + 1)[depth];
                    prop_assert_eq!(index.remove(SourceId(source), key), model.0.remove(&(source, key.get())));
                }
                Step::StoreRun(source, which, length) => {
                    if clearing.remove(&source) { forced.remove(&source); }
                    for key in chain(which, length) {
                        prop_assert_eq!(index.insert(SourceId(source), key), model.0.insert((source, key.get())));
                    }
                }
                Step::Clear(source) => {
                    if clearing.remove(&source) {
                        index.clear(SourceId(source));
                    } else {
                        prop_assert_eq!(index.clear(SourceId(source)), model.held_by(source));
                    }
                    forced.remove(&source);
                    model.0.retain(|(holder, _)| *holder != source);
                }
                Step::ClearSome(source, budget) => {
                    index.clear_step(SourceId(source), budget);
                    clearing.insert(source);
                    model.0.retain(|(holder, _)| *holder != source);
                }
                Step::Holey(source) => { forced.insert(source); }
            }
            let touched: HashSet<u16> = model.0.iter().map(|(source, _)| *source).collect();
            for &source in &touched {
                if !clearing.contains(&source) {
                    index.set_gapless(SourceId(source), gapless(&model, source) && !forced.contains(&source));
                }
            }
        }
        let blocks: HashSet<u64> = model.0.iter().map(|(_, key)| *key).collect();
        if clearing.is_empty() {
            prop_assert_eq!(index.len(), blocks.len());
        }
        let candidates: Vec<SourceId> = [300, 0, 1, 2, 3, 4, 5, 6, 7, 65_535, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 9_999]
            .map(SourceId).into();
        let mut runs = Vec::new();
        for which in 0..16 {
            for length in [0, 1, 17, 64] {
                let keys = chain(which, length);
                index.longest_runs(&keys, &candidates, &mut runs);
                let expected: Vec<u32> =
                    candidates.iter().map(|source| model.run_from(source.0, &keys, 0) as u32).collect();
                prop_assert_eq!(&runs, &expected);
                for &source in &candidates {
                    let start = length / 3;
                    // for a gapless source a run from the middle is that of the chain, for others of the tail
                    prop_assert_eq!(
                        index.run_from(source, &keys, start),
                        model.run_from(source.0, &keys, start),
                        "source {:?} start {}", source, start
                    );
                    for &key in &keys {
                        prop_assert_eq!(index.holds(source, key), model.0.contains(&(source.0, key.get())));
                    }
                }
            }
        }
        for source in candidates {
            prop_assert_eq!(index.held_by(source), model.held_by(source.0));
        }
    }
}

fn keys(from: u64, count: u64) -> impl Iterator<Item = BlockKey> {
    (from..from + count).map(|n| BlockKey::from_raw(n.wrapping_mul(0x2545_F491_4F6C_DD1D)))
}

#[test]
fn every_source_id_can_hold_a_block_alone_and_with_all_others() {
    let mut index = PrefixIndex::new();
    let key = BlockKey::from_raw(7);
    for id in (0..=u16::MAX).rev() {
        assert!(index.insert(SourceId(id), key));
        assert!(!index.insert(SourceId(id), key));
    }
    assert!((0..=u16::MAX).all(|id| index.holds(SourceId(id), key)));
    for id in 0..=u16::MAX {
        assert!(index.remove(SourceId(id), key));
        assert!(!index.holds(SourceId(id), key));
    }
    assert!(index.is_empty());
    assert!(index.insert(SourceId(0), key) && index.insert(SourceId(u16::MAX), key));
    assert!(index.holds(SourceId(0), key) && !index.holds(SourceId(1), key));
}

#[test]
fn memory_stays_flat_when_blocks_come_and_go() {
    let mut index = PrefixIndex::new();
    let window = 20_000_u64;
    for source in 0..8 {
        for key in keys(0, window) {
            index.insert(SourceId(source), key);
        }
    }
    let settled = index.heap_bytes();
    for round in 0..20 {
        let step = window / 4;
        for source in 0..8 {
            for key in keys(round * step, step) {
                assert!(index.remove(SourceId(source), key));
            }
            for key in keys(window + round * step, step) {
                assert!(index.insert(SourceId(source), key));
            }
        }
        assert_eq!(index.len() as u64, window);
        assert!(
            index.heap_bytes() <= settled * 3 / 2,
            "round {round}: {} bytes, {settled} at first",
            index.heap_bytes()
        );
    }
    for source in 0..8 {
        index.clear(SourceId(source));
    }
    assert!(index.is_empty());
    assert!(index.heap_bytes() < settled / 20);
}

#[test]
fn a_pair_costs_no_more_than_forty_bytes() {
    let mut index = PrefixIndex::new();
    for source in 0..64_u16 {
        // 16 system prompts of 128 blocks that all hold, and 2,000 blocks of one's own
        for key in keys(0, 16 * 128).chain(keys(1_000_000 + u64::from(source) * 2_000, 2_000)) {
            index.insert(SourceId(source), key);
        }
    }
    let pairs = 64 * (16 * 128 + 2_000);
    let bytes = index.heap_bytes();
    println!("{} bytes per (source, block)", bytes as f64 / pairs as f64);
    assert!(bytes <= 40 * pairs);
}

#[test]
fn a_block_costs_no_more_than_twenty_four_bytes_at_any_size() {
    let mut index = PrefixIndex::new();
    let mut fill = keys(0, 1_000_000);
    for count in [100_000, 110_000, 125_000, 140_000, 160_000, 180_000] {
        while index.len() < count {
            index.insert(SourceId(0), fill.next().unwrap());
        }
        let bytes = index.heap_bytes() as f64 / count as f64;
        println!("{count} blocks: {bytes:.1} bytes each");
        assert!(bytes <= 24.0, "{count} blocks: {bytes} bytes each");
    }
}

#[test]
fn a_sweep_leaves_no_shard_with_a_block_that_others_pushed_past_it() {
    let (gone, stays) = (SourceId(3), SourceId(4));
    for budget in [1, 2, 5, 11] {
        let mut index = PrefixIndex::new();
        for key in keys(0, 8_000) {
            index.insert(gone, key);
        }
        let mut fresh = keys(10_000, 1_000_000);
        let mut swept = 0;
        while !index.clear_step(gone, budget) {
            index.insert(stays, fresh.next().unwrap());
            let at = index.sweeps[0].shard;
            for shard in &index.shards[swept..at] {
                let slots = (0..shard.extent()).map(|at| shard.slot(at));
                assert_eq!(
                    slots
                        .filter(|slot| slot.holders.contains(gone, &index.arena))
                        .count(),
                    0
                );
            }
            swept = at;
        }
        assert!(swept > 0);
    }
}

#[test]
fn a_source_is_masked_from_the_first_step_of_its_clearing() {
    let index = SharedIndex::default();
    let (gone, stays) = (SourceId(3), SourceId(4));
    let chain: Vec<BlockKey> = keys(0, 5_000).collect();
    for &key in &chain {
        index.write().insert(gone, key);
        index.write().insert(stays, key);
    }
    assert!(!index.write().clear_step(gone, 10));
    let mut runs = Vec::new();
    index.read().longest_runs(&chain, &[gone, stays], &mut runs);
    assert_eq!(runs, [0, 5_000]);
    assert!(!index.read().holds(gone, chain[4_999]));
    assert_eq!(index.read().held_by(gone), 0);
    assert_eq!(index.read().run_from(gone, &chain, 0), 0);
    // others come and go between the steps, and move slots about
    let mut steps = 0;
    for (n, &key) in chain.iter().enumerate() {
        index.write().remove(stays, key);
        index.write().insert(SourceId(9), BlockKey::from_raw(n as u64));
        if n % 50 == 0 {
            steps += 1;
            if index.write().clear_step(gone, 300) {
                break;
            }
        }
    }
    assert!(steps > 10);
    index.clear(gone);
    let read = index.read();
    assert!(chain.iter().all(|&key| !read.holds(gone, key)));
    drop(read);
    assert!(index.write().insert(gone, chain[0]));
    assert_eq!(index.read().held_by(gone), 1);
}

#[test]
fn galloping_over_repeating_holder_sets_takes_few_look_ups_of_time() {
    let mut index = PrefixIndex::new();
    let shared: Vec<BlockKey> = keys(0, 128).collect();
    let own: Vec<BlockKey> = shared.iter().copied().chain(keys(1_000_000, 1_920)).collect();
    let candidates: Vec<SourceId> = (0..64).map(SourceId).collect();
    for &source in &candidates {
        for &key in &shared {
            index.insert(source, key);
        }
        for key in keys(10_000_000 + u64::from(source.0) * 10_000, 5_000) {
            index.insert(source, key);
        }
    }
    for &key in &own {
        index.insert(SourceId(17), key);
    }
    let mut runs = Vec::new();
    let began = std::time::Instant::now();
    let rounds = 2_000;
    for _ in 0..rounds {
        index.longest_runs(std::hint::black_box(&own), &candidates, &mut runs);
    }
    println!(
        "{} ns per look-up of 2,048 blocks, 64 candidates",
        began.elapsed().as_nanos() / rounds
    );
    let expected: HashMap<usize, u32> = HashMap::from([(17, 2_048)]);
    for (at, run) in runs.iter().enumerate() {
        assert_eq!(*run, expected.get(&at).copied().unwrap_or(128));
    }
}
