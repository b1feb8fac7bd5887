//! The way through Envoy; see the README of this folder.

use std::process::ExitCode;

use clap::Parser;
use lmetric_bench::{
    gateway::{self, Args},
    results,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lmetric-bench-gateway: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> anyhow::Result<()> {
    results::check(&args.out)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let figures = runtime.block_on(gateway::run(args))?;
    results::merge(&args.out, &figures)?;
    eprintln!("{} figures in {}", figures.len(), args.out.display());
    Ok(())
}
