//! `make demo`: engines, picker and Envoy as a stage; a slice of a real trace under each policy; a table and a page at the end.
//!
//! Every policy gets fresh processes, so caches are cold. All children are in this process's group and are killed by their
//! handles, so whatever ends the demo leaves nothing running.

mod options;
mod run;

use std::process::ExitCode;

use lmetric_telemetry::command_line;
use tokio::signal::unix::{SignalKind, signal};

use crate::options::Options;

/// Exit status after Ctrl-C, by custom.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let options: Options = match command_line::read(std::env::args_os()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let outcome = tokio::select! {
        outcome = run::demo(&options) => outcome,
        how = interrupted() => {
            eprintln!("demo: {how}; nothing is left running");
            return ExitCode::from(INTERRUPTED);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() -> &'static str {
    let [mut int, mut term, mut hup] = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ]
    .map(|kind| signal(kind).expect("a handler for a standard signal can be installed"));
    tokio::select! {
        _ = int.recv() => "interrupted",
        _ = term.recv() => "terminated",
        _ = hup.recv() => "hung up",
    }
}
