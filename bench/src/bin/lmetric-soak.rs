//! Half an hour of churn; see the README of this folder.

use std::process::ExitCode;

use clap::Parser;
use lmetric_bench::{results, soak};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = soak::Args::parse();
    match soak::run(&args).and_then(|figures| results::merge(&args.out, &figures)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lmetric-soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}
