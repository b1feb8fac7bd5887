//! Runs side by side: the figures of the JSON report, and what the runs do not have in common.

use std::path::Path;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    run_file::{IdleOverhead, RunFile, RunInfo, Summary},
    stats::Stats,
};

/// What ratios compare with where nobody says.
const BASELINE: &str = "vllm";

/// `lmetric report --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportFile {
    /// By label, in the order of the command line.
    pub policies: Map<String, Value>,
    /// What ratios compare with, if it is among the policies.
    pub baseline: Option<String>,
    /// An idle fleet's TTFT against the engine model's.
    pub idle: Option<IdleOverhead>,
    /// What a reader must know before comparing.
    pub warnings: Vec<String>,
}

/// One policy's figures. Times are in model milliseconds, over requests that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyFigures {
    /// Requests that ended.
    pub requests: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Time to first token.
    pub ttft_ms: Stats,
    /// Time per output token.
    pub tpot_ms: Stats,
    /// End to end.
    pub e2e_ms: Stats,
    /// Prompt tokens from prefix caches.
    pub cached_tokens: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Cached share of the prompt tokens.
    pub hit_ratio: f64,
    /// Mean TTFT ÷ the baseline's.
    pub ttft_ratio: Option<f64>,
    /// Mean TPOT ÷ the baseline's.
    pub tpot_ratio: Option<f64>,
}

impl PolicyFigures {
    fn of(summary: &Summary, baseline: Option<&Summary>) -> Self {
        let ratio = |mean: fn(&Summary) -> f64| {
            baseline
                .map(mean)
                .filter(|base| *base > 0.0)
                .map(|base| mean(summary) / base)
        };
        Self {
            requests: summary.requests,
            errors: summary.errors,
            ttft_ms: summary.ttft_ms,
            tpot_ms: summary.tpot_ms,
            e2e_ms: summary.e2e_ms,
            cached_tokens: summary.cached_tokens,
            prompt_tokens: summary.prompt_tokens,
            output_tokens: summary.output_tokens,
            hit_ratio: summary.hit_ratio,
            ttft_ratio: ratio(|summary| summary.ttft_ms.mean),
            tpot_ratio: ratio(|summary| summary.tpot_ms.mean),
        }
    }
}

/// Runs to compare, each with a label of its own.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// In the order of the command line.
    pub runs: Vec<RunFile>,
    /// Figures of each run.
    pub figures: Vec<PolicyFigures>,
    /// Index of the baseline.
    pub baseline: Option<usize>,
    /// From a run with `--idle`.
    pub idle: Option<IdleOverhead>,
    /// What a reader must know before comparing.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// Reads the files; runs of an idle fleet are set apart.
    pub fn open<'a>(
        paths: impl IntoIterator<Item = &'a Path>,
        baseline: Option<&str>,
    ) -> anyhow::Result<Self> {
        Self::new(
            paths.into_iter().map(RunFile::open).collect::<Result<_, _>>()?,
            baseline,
        )
    }

    /// Compares `files`.
    pub fn new(files: Vec<RunFile>, baseline: Option<&str>) -> anyhow::Result<Self> {
        let (idle, runs): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.run.idle);
        for (i, run) in runs.iter().enumerate() {
            let label = &run.run.label;
            if runs[..i].iter().any(|other| other.run.label == *label) {
                bail!("two runs are labelled {label:?}; replay one of them with another --label");
            }
        }
        if runs.is_empty() {
            bail!("no run to report on; give files written by lmetric replay without --idle");
        }
        let wanted = baseline.unwrap_or(BASELINE);
        let found = runs.iter().position(|run| run.run.label == wanted);
        if let (Some(wanted), None) = (baseline, found) {
            let labels: Vec<_> = runs.iter().map(|run| run.run.label.as_str()).collect();
            bail!(
                "no run is labelled {wanted:?}; give --baseline one of {}",
                labels.join(", ")
            );
        }
        let baseline = found;
        let base = baseline.map(|index| runs[index].summary.clone());
        let figures = runs
            .iter()
            .map(|run| PolicyFigures::of(&run.summary, base.as_ref()))
            .collect();
        let warnings = warnings(&runs);
        Ok(Self {
            figures,
            baseline,
            idle: idle.into_iter().find_map(|file| file.summary.idle),
            warnings,
            runs,
        })
    }

    /// Label of a run.
    pub fn label(&self, index: usize) -> &str {
        &self.runs[index].run.label
    }

    /// Index of the smallest figure; none when nobody has one.
    pub fn best(&self, figure: impl Fn(&PolicyFigures) -> f64) -> Option<usize> {
        let usable = |figure: f64| if figure > 0.0 { figure } else { f64::INFINITY };
        (0..self.figures.len())
            .min_by(|a, b| usable(figure(&self.figures[*a])).total_cmp(&usable(figure(&self.figures[*b]))))
            .filter(|index| figure(&self.figures[*index]) > 0.0)
    }

    /// The JSON report.
    pub fn file(&self) -> anyhow::Result<ReportFile> {
        let mut policies = Map::new();
        for (run, figures) in self.runs.iter().zip(&self.figures) {
            policies.insert(run.run.label.clone(), serde_json::to_value(figures)?);
        }
        Ok(ReportFile {
            policies,
            baseline: self.baseline.map(|index| self.label(index).to_owned()),
            idle: self.idle,
            warnings: self.warnings.clone(),
        })
    }
}

/// Settings that must be equal for a fair comparison, as a person reads them.
pub(super) fn settings(run: &RunInfo) -> Vec<(&'static str, String)> {
    let end = run
        .window_end_s
        .map_or_else(|| "the end".to_owned(), |end| format!("{end} s"));
    vec![
        ("trace", format!("{} (xxh3 {})", run.trace, run.trace_hash)),
        (
            "layout",
            format!("{}, blocks of {} tokens", run.format, run.block_size),
        ),
        ("window", format!("{} s to {end}", run.window_start_s)),
        ("rate", format!("× {}", run.rate_scale)),
        (
            "jitter",
            format!("U(0, {} s), seed {}", run.jitter_s, run.jitter_seed),
        ),
        ("speed", format!("{} model seconds per second", run.speed)),
        ("prompts", run.prompt.clone()),
        ("model", run.model.clone()),
        ("requests planned", run.planned.to_string()),
    ]
}

fn warnings(runs: &[RunFile]) -> Vec<String> {
    let mut warnings = Vec::new();
    let first = settings(&runs[0].run);
    for (place, (name, value)) in first.iter().enumerate() {
        for run in &runs[1..] {
            let other = &settings(&run.run)[place].1;
            if other != value {
                warnings.push(format!(
                    "{} and {} differ in {name}: {value}, {other}",
                    runs[0].run.label, run.run.label
                ));
            }
        }
    }
    for RunFile { run, summary, .. } in runs {
        if run.interrupted {
            warnings.push(format!(
                "{} was interrupted: {} of {} requests had not ended",
                run.label, run.unfinished, run.planned
            ));
        }
        if summary.errors > 0 {
            warnings.push(format!(
                "{} had {} errors, which are left out of its times",
                run.label, summary.errors
            ));
        }
    }
    warnings
}
