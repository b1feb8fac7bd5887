//! `lmetric`, the tool a person holds.

use std::process::ExitCode;

use lmetric_cli::command::{BAD_INPUT, Cli};
use lmetric_telemetry::command_line;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli: Cli = match command_line::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lmetric: {error:#}");
            ExitCode::from(BAD_INPUT)
        }
    }
}
