//! `lmetric-operator`: arguments, logs, run. Exit 2 for anything that a person must correct first.

use std::process::ExitCode;

use lmetric_operator::{
    args::{Cli, Command, RunArgs},
    run::run,
};
use lmetric_telemetry::{Logs, command_line};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Something in the arguments must be corrected first.
const BAD_ARGUMENTS: u8 = 2;

fn main() -> ExitCode {
    let args = match command_line::read(std::env::args_os()) {
        Ok(Cli {
            command: Command::Run(args),
        }) => args,
        Err(code) => return code,
    };
    if let Err(error) = Logs::check(&args.log) {
        eprintln!("lmetric-operator: {error}");
        return ExitCode::from(BAD_ARGUMENTS);
    }
    match start(*args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lmetric-operator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: RunArgs) -> anyhow::Result<()> {
    // kube and others would each pick one: there must be one
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        anyhow::bail!("another TLS provider was installed before");
    }
    let logs = Logs::install(&args.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(args, logs))
}
