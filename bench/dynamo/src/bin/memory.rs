//! Bytes of a holder in Dynamo's index, by an allocator that counts; the workloads of lmetric's figures.

use std::alloc::System;

use clap::Parser;
use dynamo_bench::{
    cache::Cache,
    figures::{Asked, Figure, Told},
    index::{Index, Kind},
    workload::{BLOCK, Numbers, Workload, event, hashed, stored},
};
use dynamo_kv_router::protocols::{ExternalSequenceBlockHash, KvCacheEventData, KvCacheRemoveData};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Measures the memory of Dynamo's indexes.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    asked: Asked,
}

fn live() -> f64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as f64 - stats.bytes_deallocated as f64
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut told = Told::default();
    // the one that decisions are made with has the plain names
    for (kind, suffix) in [(Kind::Compressed, ""), (Kind::Radix, "/radix")] {
        let name = format!("bytes_per_holder/fresh{suffix}");
        if args.asked.wants(&[&name]) {
            told.add(Figure::value(&name, "bytes", vec![fresh(kind)]));
        }
        let name = format!("bytes_per_holder/churn{suffix}");
        let unswept = format!("{name}/unswept");
        if args.asked.wants(&[&name, &unswept]) {
            let (swept, before) = churn(kind);
            told.add(Figure::value(&name, "bytes", vec![swept]));
            told.add(Figure::value(&unswept, "bytes", vec![before]));
        }
    }
    told.write(&args.asked)
}

/// After the workload of every other figure.
fn fresh(kind: Kind) -> f64 {
    let workload = Workload::standard();
    let before = live();
    let mut index = Index::new(kind);
    for (event, number) in workload.router_events().zip(1..) {
        index.apply(event);
        // else the queue to its thread grows, and is counted
        if number % 64 == 0 {
            index.drain();
        }
    }
    index.drain();
    assert!(
        !index.find(&workload.conversations[0].local).scores.is_empty(),
        "its prompts are held"
    );
    let bytes = live() - before;
    eprintln!("{} pairs: {:.1} MB", workload.pairs, bytes / 1e6);
    bytes / workload.pairs as f64
}

/// At constant size, after every block was replaced a dozen times: the highest of twelve readings, each after a sweep and before it.
fn churn(kind: Kind) -> (f64, f64) {
    const CACHES: u64 = 16;
    const BLOCKS: usize = 20_000;
    const TURNS: usize = 60_000;
    const CHATS: u64 = 300;
    let mut numbers = Numbers(5);
    let mut caches: Vec<Cache> = (0..CACHES).map(|_| Cache::default()).collect();
    let mut chats: Vec<(Vec<u64>, Vec<u32>)> = Vec::new();
    let (mut outside, mut swept, mut unswept) = (0.0, 0.0_f64, 0.0_f64);
    let (mut clock, mut id) = (0, 0);
    let start = live();
    let mut index = Index::new(kind);
    for turn in 1..=TURNS {
        let before = live();
        let at = numbers.below(CHATS) as usize;
        if chats.len() <= at {
            chats.push(Default::default());
        } else if chats[at].0.len() >= 512 {
            chats[at] = Default::default();
        }
        let at = at.min(chats.len() - 1);
        let (hashes, tokens) = &mut chats[at];
        hashes.extend((0..48).map(|_| numbers.draw()));
        tokens.extend(numbers.tokens(48 * BLOCK as usize));
        let endpoint = numbers.below(CACHES);
        let cache = &mut caches[endpoint as usize];
        let missing = cache.reach(hashes);
        // the tail is given back first, so the head is used last
        for hash in hashes.iter().rev() {
            clock += 1;
            cache.touch(*hash, clock);
        }
        let gone: Vec<_> = cache
            .shrink(BLOCKS)
            .into_iter()
            .map(ExternalSequenceBlockHash)
            .collect();
        let held = (gone.capacity() * size_of::<ExternalSequenceBlockHash>()) as f64;
        // everything but the index; what the events hold is freed when they are applied
        outside += live() - before - held;
        let removed = KvCacheEventData::Removed(KvCacheRemoveData { block_hashes: gone });
        index.apply(event(endpoint, id, removed));
        let parent = missing.checked_sub(1).map(|before| hashes[before]);
        let local = hashed(&tokens[missing * BLOCK as usize..]);
        index.apply(stored(endpoint, id + 1, parent, &local, &hashes[missing..]));
        id += 2;
        drop(local);
        index.drain();
        if turn % (TURNS / 12) == 0 {
            let pairs: usize = caches.iter().map(Cache::len).sum();
            let bytes = || (live() - start - outside) / pairs as f64;
            let before = bytes();
            index.sweep();
            let after = bytes();
            eprintln!("{kind:?} turn {turn}: {pairs} pairs, {before:.1} bytes each, {after:.1} when swept");
            unswept = unswept.max(before);
            swept = swept.max(after);
        }
    }
    (swept, unswept)
}
