//! `lmetric-epp`: arguments, configuration, run. Exit 2 for anything that a person must correct first.

use std::process::ExitCode;

use clap::Parser;
use lmetric_api::ConfigError;
use lmetric_epp::{
    args::Args,
    load::{Loaded, load},
    run::run,
};
use lmetric_telemetry::Logs;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Something in the configuration or the machine must be corrected first.
const BAD_CONFIGURATION: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let loaded = match load(&args) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("lmetric-epp: {error}");
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    if args.check {
        return ExitCode::SUCCESS;
    }
    match start(loaded) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lmetric-epp: {error:#}");
            ExitCode::from(if error.is::<ConfigError>() {
                BAD_CONFIGURATION
            } else {
                1
            })
        }
    }
}

fn start(loaded: Loaded) -> anyhow::Result<()> {
    let logs = Logs::install(&loaded.config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(loaded, logs))
}
