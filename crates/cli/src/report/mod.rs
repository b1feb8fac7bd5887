//! `lmetric report`: runs side by side, as a page, as JSON and on the terminal.

mod compare;
mod page;
mod plot;
mod table;

pub use compare::{Comparison, PolicyFigures, ReportFile};

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;

use crate::run_file::write_whole;

/// Compare runs: one self-contained HTML page, and on request JSON and a table on the terminal.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Page to write
    #[arg(value_name = "OUT.html")]
    pub page: PathBuf,
    /// Files that lmetric replay wrote, one for each policy; one made with --idle adds the overhead
    #[arg(value_name = "RUN.json", required = true)]
    pub runs: Vec<PathBuf>,
    /// Also write the figures as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also print a table
    #[arg(long)]
    pub table: bool,
    /// Label of the run that ratios compare with [default: vllm, if there is such a run]
    #[arg(long, value_name = "LABEL")]
    pub baseline: Option<String>,
}

/// Writes the report's files; the table goes to `out`.
pub fn run(args: &ReportArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let ReportArgs {
        page,
        runs,
        json,
        table,
        baseline,
    } = args;
    let comparison = Comparison::open(runs.iter().map(PathBuf::as_path), baseline.as_deref())?;
    write_whole(page, render(&comparison).as_bytes())?;
    if let Some(path) = json {
        let mut text = serde_json::to_vec_pretty(&comparison.file()?).context("a report is always JSON")?;
        text.push(b'\n');
        write_whole(path, &text)?;
    }
    if *table {
        table::print(&comparison, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The page.
pub fn render(comparison: &Comparison) -> String {
    page::render(comparison)
}
