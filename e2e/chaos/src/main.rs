//! `make chaos SEED=n MINUTES=m`: faults of every kind under load on the real cluster, in an order that the seed decides, and what must hold
//! whatever happens.
//!
//! A plan ([`plan`]) is made from the seed alone. Each fault is injected ([`inject`]), undone, and waited for until the fleet is whole
//! again. Requests run all the while ([`load`]); each that fails must be explained ([`explain`]) by what a fault may cost
//! ([`cost`]). [`invariants`] holds what else is checked. The timeline is written as JSON, so that a violation can be studied.

mod clock;
mod cost;
mod decisions;
mod explain;
mod fault;
mod fleet;
mod inject;
mod invariants;
mod journal;
mod load;
mod plan;
mod record;
mod report;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// Faults of every kind under load, in the cluster that this runs in (`make chaos` starts one).
#[derive(Debug, Parser)]
#[command(name = "lmetric-chaos")]
struct Args {
    /// What happens, and in which order, follows from it alone.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length of the run.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=24 * 60))]
    minutes: u64,
    /// File for the timeline. Default: target/chaos/seed-SEED.json.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Only faults whose kind holds this text, such as "crash", to study them.
    #[arg(long, default_value = "", env = "LMETRIC_CHAOS_ONLY")]
    only: String,
    /// Only print the plan.
    #[arg(long)]
    plan: bool,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let options = run::Options {
        seed: args.seed,
        length: Duration::from_mins(args.minutes),
        only: args.only,
        out: args
            .out
            .unwrap_or_else(|| PathBuf::from(format!("target/chaos/seed-{}.json", args.seed))),
    };
    if args.plan {
        let plan = options.plan();
        for step in &plan.steps {
            let strike = step.strike.as_ref();
            let strike = strike.map_or(String::new(), |(fault, after)| {
                format!(", after {after} s {fault}")
            });
            journal::say(&format!("{}{strike}", step.fault));
        }
        journal::say(&format!("seed {}, plan {}", plan.seed, plan.hash()));
        return Ok(ExitCode::SUCCESS);
    }
    let facts = run::run(&options).await?;
    Ok(if facts.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
