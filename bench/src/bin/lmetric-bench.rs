//! Times and rates; see the README of this folder.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use clap::Parser;
use lmetric_bench::{
    hash, ingest, picks,
    results::{self, Figure},
    tokens,
    workload::Workload,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the picker's inside.
#[derive(Parser)]
struct Args {
    /// Only figures whose name holds this text
    #[arg(long, default_value = "")]
    only: String,
    /// Runs of each; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Where the figures go; others that are there stay
    #[arg(long, default_value = "target/bench/results.json")]
    out: PathBuf,
    /// Folder of the tokenizer
    #[arg(long, default_value = "crates/tokenize/testdata/tiny-qwen2")]
    tokenizer: PathBuf,
    /// Also how costs grow with endpoints, prompts and blocks
    #[arg(long)]
    growth: bool,
    /// Compares the figures in --out with a stored run instead of measuring
    #[arg(long)]
    compare: Option<PathBuf>,
    /// How much worse a figure may be, with --compare
    #[arg(long, default_value_t = 0.2)]
    slack: f64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(before) = &args.compare {
        results::compare(&results::read(&args.out)?, &results::read(before)?, args.slack)?;
        return Ok(());
    }
    results::check(&args.out)?;
    let mut told = Told {
        only: args.only.clone(),
        figures: Vec::new(),
    };
    measure(&args, &mut told)?;
    results::merge(&args.out, &told.figures)?;
    eprintln!("{} figures in {}", told.figures.len(), args.out.display());
    Ok(())
}

struct Told {
    only: String,
    figures: Vec<Figure>,
}

impl Told {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.only) || self.only.starts_with(name)
    }

    fn add(&mut self, figure: Figure) {
        eprintln!("{}", results::line(&figure));
        self.figures.push(figure);
    }
}

fn measure(args: &Args, told: &mut Told) -> anyhow::Result<()> {
    let runs = args.runs.max(1);
    for (name, per) in [("ingest/32-block", 32), ("ingest/1-block", 1)] {
        if told.wants(name) {
            let rates = (0..runs as u64)
                .map(|seed| ingest::rate(per, 400_000, seed))
                .collect();
            told.add(Figure::value(name, "blocks/s", rates));
        }
    }
    if told.wants("tokenize/") {
        for figure in tokens::figures(&args.tokenizer, runs).context("tokenize")? {
            told.add(figure);
        }
    }
    for (name, length) in [("hash/8k", 8_192), ("hash/32k", 32_768)] {
        if told.wants(name) {
            told.add(hash::figure(name, length, runs)?);
        }
    }
    if told.wants("pick") {
        pick(told, runs);
    }
    if args.growth {
        growth(told, runs);
    }
    Ok(())
}

fn pick(told: &mut Told, runs: usize) {
    let workload = Arc::new(Workload::new(1_000, 320, 64, 1));
    eprintln!(
        "{} events, {} blocks, {} (endpoint, block) pairs",
        workload.events.len(),
        workload.blocks,
        workload.pairs
    );
    let (fleet, _feeds) = picks::filled(&workload, 64);
    let fleet = Arc::new(fleet);
    for (name, length) in [("pick/8k/64", 8_192), ("pick/32k/64", 32_768)] {
        if told.wants(name) {
            told.add(picks::figure(&fleet, &workload, name, length, runs));
        }
    }
    for (name, length) in [("picks_per_s/2cores", 2_048), ("picks_per_s/2cores/8k", 8_192)] {
        if told.wants(name) {
            let lasts = Duration::from_secs(2);
            let rates: Vec<_> = (0..runs)
                .map(|_| picks::rate(&fleet, &workload, length, lasts, 100_000))
                .collect();
            let slowest = rates
                .iter()
                .map(|(_, blocks)| *blocks)
                .fold(f64::INFINITY, f64::min);
            eprintln!("{name}: with at least {slowest:.0} blocks/s coming in");
            told.add(Figure::value(
                name,
                "picks/s",
                rates.into_iter().map(|(picks, _)| picks).collect(),
            ));
        }
    }
    if told.wants("pick/8k/1000") {
        let workload = Workload::new(1_000, 320, 1_000, 1);
        let (fleet, _feeds) = picks::filled(&workload, 1_000);
        told.add(picks::figure(&fleet, &workload, "pick/8k/1000", 8_192, runs));
    }
}

fn growth(told: &mut Told, runs: usize) {
    for endpoints in [10_u16, 30, 100, 300, 1_000] {
        let workload = Workload::new(300, 100, u64::from(endpoints), 1);
        let (fleet, _feeds) = picks::filled(&workload, endpoints);
        let name = format!("growth/endpoints/{endpoints}");
        told.add(picks::figure(&fleet, &workload, &name, 8_192, runs));
    }
    let workload = Workload::of_lengths(0, 100, (0, 131_072), 64, 1);
    let (fleet, _feeds) = picks::filled(&workload, 64);
    for length in [1_024, 4_096, 8_192, 32_768, 65_536, 131_072] {
        let name = format!("growth/prompt/{length}");
        told.add(picks::figure(&fleet, &workload, &name, length, runs));
    }
    for short in [260, 2_600, 26_000] {
        let workload = Workload::new(short, 0, 64, 1);
        let (fleet, _feeds) = picks::filled(&workload, 64);
        let name = format!("growth/blocks/{}", workload.blocks);
        told.add(picks::figure(&fleet, &workload, &name, 8_192, runs));
    }
}
