//! The command line as a whole: which commands there are, and the runtime that they run on.

use std::{process::ExitCode, thread::available_parallelism};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{crds, explain, probe, replay, report, simulate};

/// Exit status of input that cannot be used.
pub const BAD_INPUT: u8 = 2;

/// Measure and explain LLM request routing.
#[derive(Parser, Debug)]
#[command(
    name = "lmetric",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Replay(Box<replay::ReplayArgs>),
    Simulate(Box<simulate::SimulateArgs>),
    Report(report::ReportArgs),
    Explain(explain::ExplainArgs),
    Crds(crds::CrdsArgs),
    Probe(probe::ProbeArgs),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Replay(args) => {
                let half = available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
                let threads = args.threads.unwrap_or(half);
                runtime(threads)?.block_on(async {
                    let stop = CancellationToken::new();
                    let _signals = watch_signals(stop.clone())?.drop_guard();
                    replay::run(*args, stop).await
                })
            }
            Command::Simulate(args) => {
                // the runtime only watches for Ctrl-C; runs have threads of their own
                let runtime = runtime(1)?;
                let stop = CancellationToken::new();
                let _signals = runtime
                    .block_on(async { watch_signals(stop.clone()) })?
                    .drop_guard();
                simulate::run(&args, &stop)
            }
            Command::Report(args) => report::run(&args, &mut std::io::stdout().lock()),
            Command::Explain(args) => {
                runtime(1)?.block_on(async { explain::run(&args, &mut std::io::stdout().lock()).await })
            }
            Command::Probe(args) => {
                runtime(1)?.block_on(async { probe::run(&args, &mut std::io::stdout().lock()).await })
            }
            Command::Crds(args) => {
                crds::run(&args, &mut std::io::stdout().lock())?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn runtime(threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start threads; lower --threads")
}

/// Cancels `stop` at Ctrl-C or SIGTERM. Cancelling the returned token ends the watch.
fn watch_signals(stop: CancellationToken) -> anyhow::Result<CancellationToken> {
    let catch = |kind| signal(kind).context("cannot watch for Ctrl-C");
    let (mut interrupt, mut terminate) = (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
    let over = CancellationToken::new();
    let watched = over.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => stop.cancel(),
            _ = terminate.recv() => stop.cancel(),
            () = watched.cancelled() => {}
        }
    });
    Ok(over)
}
