//! Half an hour of churn; see the README of this folder.

use clap::Parser;
use lmetric_bench::{results, soak};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let args = soak::Args::parse();
    let figures = soak::run(&args)?;
    results::merge(&args.out, &figures)
}
