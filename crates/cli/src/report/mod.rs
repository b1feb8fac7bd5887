//! `lmetric report`: runs side by side, as a page, as JSON and on the terminal.

mod compare;
mod page;
mod plot;
mod study;
mod table;

pub use compare::{Comparison, PolicyFigures, ReportFile};

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;

use crate::{run_file::write_whole, simulate::Study};

/// Compare runs or studies: one self-contained HTML page, and on request JSON and a table on the terminal.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Page to write
    #[arg(value_name = "OUT.html")]
    pub page: PathBuf,
    /// Files that lmetric replay wrote, one for each policy (one made with --idle adds the overhead), or studies that
    /// lmetric simulate wrote
    #[arg(value_name = "FILE.json", required = true)]
    pub runs: Vec<PathBuf>,
    /// Also write the figures as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also print a table
    #[arg(long)]
    pub table: bool,
    /// Label that ratios compare with [default: vllm for runs, lmetric for studies]
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
    let studies = open_studies(runs)?;
    if !studies.is_empty() {
        let studies = study::Studies::new(&studies, baseline.as_deref())?;
        write_whole(page, studies.render().as_bytes())?;
        if let Some(path) = json {
            let mut text = serde_json::to_vec_pretty(&studies.json()).context("a report is always JSON")?;
            text.push(b'\n');
            write_whole(path, &text)?;
        }
        if *table {
            studies.print(out)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
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

/// The studies among the files; all of them are studies, or none is.
fn open_studies(paths: &[PathBuf]) -> anyhow::Result<Vec<Study>> {
    #[derive(serde::Deserialize)]
    struct Head {
        schema: String,
    }

    let mut studies = Vec::new();
    let mut read = 0;
    for path in paths {
        let bytes = std::fs::read(path).with_context(|| {
            format!(
                "{}: give a file written by lmetric replay or simulate",
                path.display()
            )
        })?;
        let head = serde_json::from_slice::<Head>(&bytes);
        if head.is_ok_and(|head| head.schema.starts_with("lmetric-study/")) {
            let study = Study::parse(path, &bytes)?;
            // the same requests on the same engines: parts of one study
            match studies.iter_mut().find(|other: &&mut Study| {
                let scale = |one: &Study| one.capacity.as_ref().map(|capacity| capacity.rate_scale);
                other.settings == study.settings && scale(other) == scale(&study)
            }) {
                Some(other) => other.extend(study),
                None => studies.push(study),
            }
            read += 1;
        } else if !studies.is_empty() {
            bail!(
                "{}: not a study, but files before it are; report on runs and studies apart",
                path.display()
            );
        }
    }
    if read > 0 && read < paths.len() {
        bail!("some files are studies and some are runs; report on them apart");
    }
    Ok(studies)
}

/// The page.
pub fn render(comparison: &Comparison) -> String {
    page::render(comparison)
}
