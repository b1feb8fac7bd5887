//! The file that `simulate` writes: what was run, and each run's outcome. It holds no clock and no machine's name, so that
//! the same flags give the same bytes.

use std::path::Path;

use anyhow::{Context as _, bail};
use lmetric_scheduler::PolicyKind;
use serde::{Deserialize, Serialize};

use super::{fleet::FleetSpec, measure::Outcome};
use crate::run_file::write_whole;

/// Name and version of the layout.
pub const SCHEMA: &str = "lmetric-study/1";

/// A study: runs of several policies on one trace and one fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// [`SCHEMA`].
    pub schema: String,
    /// What every run has in common.
    pub settings: Settings,
    /// The largest rate that the fleet keeps up with, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The runs, in the order of their plan.
    pub cells: Vec<Cell>,
    /// A person ended it before all runs were done.
    pub interrupted: bool,
}

/// What every run has in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Trace file's name.
    pub trace: String,
    /// xxh3 of its bytes, in hex.
    pub trace_hash: String,
    /// Its layout.
    pub format: String,
    /// Tokens per block of it.
    pub block_size: u32,
    /// Requests left out because they are longer than `max_model_len`.
    pub left_out: u64,
    /// Longest request, if bounded.
    pub max_model_len: Option<u32>,
    /// Engines.
    pub fleet: FleetSpec,
    /// First second of the window.
    pub window_start_s: f64,
    /// End of it; none: the trace's.
    pub window_end_s: Option<f64>,
    /// Jitter, seconds.
    pub jitter_s: f64,
    /// Not measured, seconds.
    pub warm_up_s: f64,
    /// Milliseconds.
    pub event_delay_ms: f64,
    /// Milliseconds.
    pub scrape_delay_ms: f64,
    /// The picker sees answers.
    pub bodies: bool,
    /// Blocks of open reservations count as held.
    pub overlay: bool,
    /// The detector's action.
    pub hotspot: String,
    /// Version of the tool.
    pub tool: String,
}

/// The largest rate scale at which the last quarter's mean TTFT is at most 1.5 × the second's, over all policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Rate scale.
    pub rate_scale: f64,
    /// Requests per second.
    pub rate: f64,
    /// Those of the policies that led to it, each better than the ones before; none where the capacity was given.
    pub by_policy: Vec<(String, f64)>,
}

/// Which part of a split fleet a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// All of it.
    Whole,
    /// One third of engines and requests.
    Canary,
    /// Two thirds.
    Rest,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Policy with what differs from its source's parameters.
    pub label: String,
    /// Policy with all parameters.
    pub policy: PolicyKind,
    /// Parameter and value, if it belongs to a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<(String, String)>,
    /// Which part of the fleet.
    pub share: Share,
    /// Arrivals per trace arrival.
    pub rate_scale: f64,
    /// Rate scale ÷ capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// Seed.
    pub seed: u64,
    /// What came out.
    pub outcome: Outcome,
}

impl Study {
    /// Reads a study.
    pub fn parse(path: &Path, bytes: &[u8]) -> anyhow::Result<Self> {
        let study: Self = serde_json::from_slice(bytes).with_context(|| {
            format!(
                "{}: give a file written by lmetric simulate --out",
                path.display()
            )
        })?;
        if study.schema != SCHEMA {
            bail!(
                "{}: schema {:?} is not {SCHEMA:?}; simulate again with this version of lmetric",
                path.display(),
                study.schema
            );
        }
        Ok(study)
    }

    /// Takes the runs of another study of the same requests and fleet, but for those that are here already.
    pub fn extend(&mut self, other: Self) {
        self.interrupted |= other.interrupted;
        for cell in other.cells {
            if !self.cells.contains(&cell) {
                self.cells.push(cell);
            }
        }
    }

    /// As bytes.
    pub fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).context("a study is always JSON")?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Writes it in one step.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        write_whole(path, &self.bytes()?)
    }

    /// One line for each run.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "policy,share,rate_scale,fraction,seed,requests,rate,ttft_mean_ms,ttft_p50_ms,ttft_p90_ms,ttft_p99_ms,tpot_mean_ms,tpot_p50_ms,tpot_p90_ms,tpot_p99_ms,e2e_mean_ms,hit_ratio,spread_bs,spread_prefill,preemptions,alarms,filters\n",
        );
        for cell in &self.cells {
            let figures = &cell.outcome.figures;
            let share = match cell.share {
                Share::Whole => "whole",
                Share::Canary => "canary",
                Share::Rest => "rest",
            };
            let mut fields = vec![
                format!("\"{}\"", cell.label),
                share.to_owned(),
                cell.rate_scale.to_string(),
            ];
            fields.push(
                cell.fraction
                    .map_or_else(String::new, |fraction| fraction.to_string()),
            );
            fields.push(cell.seed.to_string());
            fields.push(figures.requests.to_string());
            fields.push(figures.rate.to_string());
            for stats in [figures.ttft_ms, figures.tpot_ms] {
                fields.extend([stats.mean, stats.p50, stats.p90, stats.p99].map(|figure| figure.to_string()));
            }
            for figure in [
                figures.e2e_ms.mean,
                figures.hit_ratio,
                figures.spread_bs,
                figures.spread_prefill,
            ] {
                fields.push(figure.to_string());
            }
            fields.extend(
                [figures.preemptions, figures.alarms, figures.filters].map(|count| count.to_string()),
            );
            text.push_str(&fields.join(","));
            text.push('\n');
        }
        text
    }
}
