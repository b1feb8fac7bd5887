//! Bytes of a holder: the index and the sources' own books, by an allocator that counts.

use std::{
    alloc::System,
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use clap::Parser;
use lmetric_bench::{
    fleet::Fleet,
    payload::{Run, batch},
    results::{self, Figure},
    workload::{BLOCK, Numbers, Workload},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Measures the memory of the picker's inside.
#[derive(Parser)]
struct Args {
    /// Where the figures go; others that are there stay
    #[arg(long, default_value = "target/bench/results.json")]
    out: PathBuf,
}

fn live() -> f64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as f64 - stats.bytes_deallocated as f64
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    results::check(&args.out)?;
    let figures = [fresh(), churn()];
    for figure in &figures {
        eprintln!("{}", results::line(figure));
    }
    results::merge(&args.out, &figures)
}

/// After the workload of every other figure.
fn fresh() -> Figure {
    let workload = Workload::new(1_000, 320, 64, 1);
    let before = live();
    let fleet = Fleet::new(64);
    let mut feeds: Vec<_> = (0..64).map(|_| fleet.source()).collect();
    fleet.fill(&workload, &mut feeds);
    let bytes = live() - before;
    eprintln!("{} pairs: {:.1} MB", workload.pairs, bytes / 1e6);
    Figure::value(
        "bytes_per_holder/fresh",
        "bytes",
        vec![bytes / workload.pairs as f64],
    )
}

/// One endpoint's cache, least recently used first, as long as it takes.
#[derive(Default)]
struct Cache {
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Cache {
    fn touch(&mut self, hash: u64, at: u64) -> bool {
        let before = self.used.insert(hash, at);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(at, hash);
        before.is_none()
    }

    fn evict(&mut self) -> Option<u64> {
        let (_, hash) = self.order.pop_first()?;
        self.used.remove(&hash);
        Some(hash)
    }
}

/// At constant size, after every block was replaced a dozen times.
fn churn() -> Figure {
    const ENDPOINTS: u16 = 16;
    const BLOCKS: usize = 20_000;
    const TURNS: usize = 60_000;
    let mut numbers = Numbers(5);
    let mut caches: Vec<Cache> = (0..ENDPOINTS).map(|_| Cache::default()).collect();
    let mut outside = 0.0;
    let start = live();
    let fleet = Fleet::new(ENDPOINTS);
    let mut feeds: Vec<_> = (0..ENDPOINTS).map(|_| fleet.source()).collect();
    let mut figures = Vec::new();
    let mut clock = 0;
    let mut chats: Vec<(Vec<u64>, Vec<u32>)> = Vec::new();
    for turn in 1..=TURNS {
        let before = live();
        let at = numbers.below(300) as usize;
        if chats.len() <= at || chats[at].0.len() >= 512 {
            let fresh = (Vec::new(), Vec::new());
            if chats.len() <= at {
                chats.push(fresh);
            } else {
                chats[at] = fresh;
            }
        }
        let at = at.min(chats.len() - 1);
        let (hashes, tokens) = &mut chats[at];
        hashes.extend((0..48).map(|_| numbers.draw()));
        tokens.extend(numbers.tokens(48 * BLOCK));
        let endpoint = numbers.below(u64::from(ENDPOINTS)) as u16;
        let cache = &mut caches[usize::from(endpoint)];
        let missing = hashes
            .iter()
            .position(|hash| !cache.used.contains_key(hash))
            .unwrap_or(hashes.len());
        // the tail is given back first, so the head is used last
        for hash in hashes.iter().rev() {
            clock += 1;
            cache.touch(*hash, clock);
        }
        let mut gone = Vec::new();
        while cache.used.len() > BLOCKS {
            gone.extend(cache.evict());
        }
        let stored = batch(&[Run {
            parent: missing.checked_sub(1).map(|before| hashes[before]),
            hashes: &hashes[missing..],
            tokens: &tokens[missing * BLOCK..],
        }]);
        let removed = lmetric_bench::payload::removed(&gone);
        drop(gone);
        let payloads = (stored.capacity() + removed.capacity()) as f64;
        // everything but index and sources
        outside += live() - before - payloads;
        fleet.receive(endpoint, &mut feeds[usize::from(endpoint)], &removed);
        fleet.receive(endpoint, &mut feeds[usize::from(endpoint)], &stored);
        if turn % (TURNS / 12) == 0 {
            let pairs: usize = caches.iter().map(|cache| cache.used.len()).sum();
            let payloads = (stored.capacity() + removed.capacity()) as f64;
            let bytes = (live() - start - outside - payloads) / pairs as f64;
            eprintln!("turn {turn}: {pairs} pairs, {bytes:.1} bytes each");
            figures.push(bytes);
        }
    }
    let highest = figures.into_iter().fold(0.0, f64::max);
    Figure::value("bytes_per_holder/churn", "bytes", vec![highest])
}
