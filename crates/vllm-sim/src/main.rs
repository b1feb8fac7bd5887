//! Many simulated vLLM engines in one process, or, as `vllm serve MODEL`, what stands in for vLLM. See `--help`.

use std::io::Write;
use std::process::ExitCode;

use futures::future::{join_all, select_all};
use lmetric_telemetry::command_line;
use tokio::signal::unix::{SignalKind, signal};
use vllm_sim::serve::Serve;
use vllm_sim::{Args, Fleet};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    match start().await {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "vllm-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn start() -> anyhow::Result<ExitCode> {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        let Serve { fleets, ignored } =
            Serve::read(std::env::args().skip(2), |name| std::env::var(name).ok())?;
        run(&fleets, &ignored).await
    } else {
        match command_line::read(std::env::args_os()) {
            Ok(args) => run(&[args], &[]).await,
            Err(code) => Ok(code),
        }
    }
}

/// Serves until told to stop: `lines` has one entry for each set of ports.
async fn run(lines: &[Args], ignored: &[String]) -> anyhow::Result<ExitCode> {
    let Args {
        log,
        shutdown_timeout,
        ..
    } = &lines[0];
    let _logs = lmetric_telemetry::Logs::install(log)?;
    if !ignored.is_empty() {
        tracing::info!(
            flags = ignored.join(" "),
            "accepted without effect: a simulator has no use for them"
        );
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut fleets = Vec::new();
    for args in lines {
        let fleet = Fleet::start(args).await?;
        writeln!(std::io::stdout(), "{}", fleet.ready())?;
        fleets.push(fleet);
    }
    let exits: Vec<_> = fleets.iter().map(|fleet| fleet.faults().clone()).collect();
    let exit = select_all(exits.iter().map(|faults| Box::pin(faults.exit_code())));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        (code, ..) = exit => return Ok(ExitCode::from(code as u8)),
    }
    join_all(fleets.into_iter().map(|fleet| fleet.shutdown(*shutdown_timeout))).await;
    Ok(ExitCode::SUCCESS)
}
