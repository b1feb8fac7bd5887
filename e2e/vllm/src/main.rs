//! `make e2e-vllm`: predicted hits against the cached tokens of two real vLLM engines behind Envoy.

mod conversation;
mod engine;
mod run;
mod verdict;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

/// Compare the picker's predicted hits with what two real vLLM engines report.
#[derive(Debug, Parser)]
struct Options {
    /// Virtual environment with vLLM in it
    #[arg(long)]
    venv: PathBuf,
    /// Folder with `python/` and `model/`
    #[arg(long, default_value = "e2e/vllm")]
    files: PathBuf,
    /// Seed of the conversations
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { venv, files, seed } = Options::parse();
    let outcome = tokio::select! {
        outcome = run::run(&venv, &files, seed) => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("e2e-vllm: {error:#}");
            ExitCode::FAILURE
        }
    }
}
