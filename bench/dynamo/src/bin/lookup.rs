//! What Dynamo's hashing and its three indexes cost alone.

use std::{hint::black_box, time::Instant};

use clap::{Parser, ValueEnum};
use dynamo_bench::{
    figures::{Asked, Figure, Told},
    index::{Index, Kind},
    workload::{Numbers, Workload, hashed},
};
use dynamo_kv_router::{LocalBlockHash, protocols::compute_seq_hash_for_block};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COUNT: usize = 4_000;
const SYSTEM_TOKENS: usize = 2_048;
const LENGTHS: [(&str, usize); 2] = [("8k", 8_192), ("32k", 32_768)];

/// Measures hashing, look-ups and applying.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    asked: Asked,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut told = Told::default();
    let workload = Workload::standard();
    for (label, length) in LENGTHS {
        let name = format!("hash/{label}");
        if args.asked.wants(&[&name]) {
            let runs = (0..args.asked.runs).map(|seed| hash(length, seed)).collect();
            told.add(Figure::times(&name, runs));
        }
    }
    for kind in Kind::value_variants() {
        let kind_name = format!("{kind:?}").to_lowercase();
        let name = |what: &str| format!("{what}/{kind_name}");
        let lookups = ["continued", "begun"]
            .map(|chat| LENGTHS.map(|(label, _)| name(&format!("find/{label}/{chat}"))));
        let applied = name("apply");
        if !args.asked.wants(&[&applied]) && lookups.iter().flatten().all(|name| !args.asked.wants(&[name])) {
            continue;
        }
        let mut index = Index::new(*kind);
        let events: Vec<_> = workload.router_events().collect();
        let count = events.len();
        let started = Instant::now();
        for event in events {
            index.apply(event);
        }
        index.drain();
        let rate = count as f64 / started.elapsed().as_secs_f64();
        told.add(Figure::value(&applied, "events/s", vec![rate]));
        for (keeps, names) in [0.95, 0.0].into_iter().zip(&lookups) {
            for ((_, length), name) in LENGTHS.into_iter().zip(names) {
                if args.asked.wants(&[name]) {
                    let runs = (0..args.asked.runs)
                        .map(|seed| find(&index, &prompts(&workload, length, keeps, seed)))
                        .collect();
                    told.add(Figure::times(name, runs));
                }
            }
        }
    }
    told.write(&args.asked)
}

/// Times of hashing a prompt's blocks and their chain.
fn hash(length: usize, seed: u64) -> Vec<u64> {
    let mut numbers = Numbers(seed);
    (0..COUNT / 10)
        .map(|_| {
            let tokens = numbers.tokens(length);
            let started = Instant::now();
            black_box(compute_seq_hash_for_block(&hashed(&tokens)));
            started.elapsed().as_nanos() as u64
        })
        .collect()
}

/// Prompts that share this part with a conversation (its system prompt at least) and go on as nobody did.
fn prompts(workload: &Workload, length: usize, keeps: f64, seed: u64) -> Vec<Vec<LocalBlockHash>> {
    let mut numbers = Numbers(seed);
    let known: Vec<_> = workload
        .conversations
        .iter()
        .filter(|conversation| conversation.tokens.len() >= length)
        .collect();
    let shared = SYSTEM_TOKENS.max((length as f64 * keeps) as usize);
    (0..COUNT)
        .map(|_| {
            let conversation = known[numbers.below(known.len() as u64) as usize];
            let mut tokens = conversation.tokens[..shared].to_vec();
            tokens.extend(numbers.tokens(length - shared));
            hashed(&tokens)
        })
        .collect()
}

fn find(index: &Index, prompts: &[Vec<LocalBlockHash>]) -> Vec<u64> {
    prompts
        .iter()
        .map(|prompt| {
            let started = Instant::now();
            let found = black_box(index.find(prompt));
            let took = started.elapsed();
            assert!(!found.scores.is_empty(), "the system prompt is held");
            took.as_nanos() as u64
        })
        .collect()
}
