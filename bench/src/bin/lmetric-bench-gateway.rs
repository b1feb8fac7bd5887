//! The way through Envoy; see the README of this folder.

use clap::Parser;
use lmetric_bench::{gateway, results};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let args = gateway::Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let figures = runtime.block_on(gateway::run(&args))?;
    results::merge(&args.out, &figures)?;
    eprintln!("{} figures in {}", figures.len(), args.out.display());
    Ok(())
}
