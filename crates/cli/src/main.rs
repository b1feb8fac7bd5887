//! `lmetric`, the tool a person holds.

use std::process::ExitCode;

use clap::Parser as _;
use lmetric_cli::command::{BAD_INPUT, Cli};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lmetric: {error:#}");
            ExitCode::from(BAD_INPUT)
        }
    }
}
