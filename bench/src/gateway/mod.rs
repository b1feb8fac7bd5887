//! What a request costs through the real Envoy: alone, with the picker in light mode, with the picker in full mode.
//!
//! Everything a fleet has is there: engines whose metrics are scraped and whose KV events are published, chats of about 8,000 tokens
//! over 16 system prompts, a real tokenizer, endpoints from a file. Runs with and without the picker take turns, and how much Envoy alone
//! differs from itself is shown beside every difference.

pub mod answer;
pub mod board;
pub mod chats;
pub mod engine;
pub mod engines;
pub mod fill;
pub mod load;
pub mod measure;
pub mod report;
pub mod rig;
pub mod timer;

use std::{path::PathBuf, time::Duration};

use anyhow::ensure;
use clap::Parser;

use self::{
    measure::Rate,
    rig::{Rig, RigOptions},
};
use crate::{results::Figure, workload::Workload};

/// Most engines: they are numbered from 1 on, Envoys from 240 on.
const MOST_ENGINES: u8 = 200;

/// Measures the way through Envoy.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Requests per second
    #[arg(long, value_delimiter = ',', default_value = "50,100,200")]
    pub rates: Vec<f64>,
    /// Pairs of runs, without and with the picker, for each rate and mode
    #[arg(long, default_value_t = 5)]
    pub pairs: usize,
    /// Seconds of each run
    #[arg(long, default_value_t = 4.0)]
    pub seconds: f64,
    /// Seconds for which the idle picker is watched
    #[arg(long, default_value_t = 30.0)]
    pub idle: f64,
    /// Engines behind Envoy
    #[arg(long, default_value_t = 64)]
    pub engines: u8,
    /// Engines that the idle picker knows
    #[arg(long, default_value_t = 100)]
    pub idle_engines: u8,
    /// Chats that fill the engines' caches before anything is measured (a quarter of them as many of 32,768 tokens; 0: empty caches)
    #[arg(long, default_value_t = 1_320)]
    pub chats: usize,
    /// TLS between Envoy and picker
    #[arg(long)]
    pub tls: bool,
    /// Folder of the tokenizer (scripts/bench-tokenizer.sh gets one)
    #[arg(long, default_value = "target/bench/tokenizer")]
    pub tokenizer: PathBuf,
    /// Where the figures go; others that are there stay
    #[arg(long, default_value = "target/bench/results.json")]
    pub out: PathBuf,
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        let most = self.engines.max(self.idle_engines);
        ensure!(
            (1..=MOST_ENGINES).contains(&self.engines) && most <= MOST_ENGINES,
            "--engines and --idle-engines: give 1 to {MOST_ENGINES}"
        );
        ensure!(
            self.rates.iter().all(|rate| (1.0..=1_000.0).contains(rate)),
            "--rates: give 1 to 1,000 requests per second each"
        );
        ensure!((1..=1_000).contains(&self.pairs), "--pairs: give 1 to 1,000");
        ensure!((1.0..=600.0).contains(&self.seconds), "--seconds: give 1 to 600");
        ensure!(
            (1.0..=600.0).contains(&self.idle),
            "--idle: give 1 to 600 seconds"
        );
        ensure!(self.chats <= 10_000, "--chats: give at most 10,000");
        Ok(())
    }
}

/// The picker when nobody asks for anything, and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Cores, knowing `idle_engines`.
    pub idle_most: f64,
    /// Cores, knowing `engines`, caches full.
    pub idle: f64,
    /// Bytes, nothing held.
    pub empty: u64,
    /// Bytes, caches full.
    pub full: u64,
    /// Bytes after all loads.
    pub after: u64,
    /// (endpoint, block) pairs held.
    pub pairs: u64,
}

/// Measures all, shows it, and returns the figures.
pub async fn run(args: &Args) -> anyhow::Result<Vec<Figure>> {
    args.check()?;
    let mut maker = chats::Maker::new(&args.tokenizer, 1)?;
    let mut rig = Rig::start(RigOptions {
        tokenizer: std::path::absolute(&args.tokenizer)?,
        engines: args.engines,
        most: args.engines.max(args.idle_engines),
        tls: args.tls,
    })
    .await?;
    eprintln!(
        "the picker with {} idle endpoints",
        args.engines.max(args.idle_engines)
    );
    let lasts = Duration::from_secs_f64(args.idle);
    let idle_most = rig.idle(lasts).await?;
    rig.restart_picker().await?;
    rig.settle().await;
    let empty = rig.memory()?;
    let mut standing = Standing {
        idle_most,
        idle: 0.0,
        empty,
        full: empty,
        after: empty,
        pairs: 0,
    };
    if args.chats > 0 {
        eprintln!("filling the caches of {} engines", args.engines);
        let short = args.chats * 1_000 / 1_320;
        let workload = Workload::new(short, args.chats - short, u64::from(args.engines), 1);
        let engines = &rig.engines.all[..usize::from(args.engines)];
        standing.pairs = fill::fill(engines, &rig.admin(), &workload).await?;
    }
    standing.idle = rig.idle(lasts / 3).await?;
    standing.full = rig.memory()?;
    let mut rates: Vec<Rate> = Vec::new();
    for rate in &args.rates {
        rates.push(measure::rate(&mut rig, &mut maker, *rate, args).await?);
    }
    rig.check().await?;
    standing.after = rig.memory()?;
    let endpoints = rig.admin().endpoints().await?;
    standing.pairs = endpoints.values().map(|endpoint| endpoint.blocks).sum();
    for line in report::table(&rates, &standing, args) {
        eprintln!("{line}");
    }
    Ok(report::figures(&rates, &standing, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_range_is_named_with_its_range() {
        let refused = |flags: &[&str]| {
            let words = std::iter::once("bench").chain(flags.iter().copied());
            Args::parse_from(words).check().unwrap_err().to_string()
        };
        assert!(refused(&["--rates", "50,0"]).contains("--rates"));
        assert!(refused(&["--engines", "0"]).contains("1 to 200"));
        assert!(refused(&["--seconds", "NaN"]).contains("--seconds"));
        assert!(Args::parse_from(["bench"]).check().is_ok());
    }
}
