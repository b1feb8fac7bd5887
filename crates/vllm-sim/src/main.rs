//! Many simulated vLLM engines in one process. See `--help`.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use vllm_sim::{Args, Fleet};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "vllm-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let _logs = lmetric_telemetry::Logs::install(&args.log)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let fleet = Fleet::start(args).await?;
    writeln!(std::io::stdout(), "{}", fleet.ready())?;
    let faults = fleet.faults().clone();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        code = faults.exit_code() => return Ok(ExitCode::from(code as u8)),
    }
    fleet.shutdown(args.shutdown_timeout).await;
    Ok(ExitCode::SUCCESS)
}
