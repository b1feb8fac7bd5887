//! Half an hour of churn; see the README of this folder.

use std::process::ExitCode;

use clap::Parser;
use lmetric_bench::{results, soak};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match churn(&soak::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lmetric-soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn churn(args: &soak::Args) -> anyhow::Result<()> {
    results::check(&args.out)?;
    let figures = soak::run(args)?;
    results::merge(&args.out, &figures)
}
