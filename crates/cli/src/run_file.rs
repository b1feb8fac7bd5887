//! The JSON file that `replay` writes and `report` reads. Every time in it is in model milliseconds
//! (measured × speed), and counts from the moment the request was sent.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::{client::FailureKind, stats::Stats};

/// Name and version of the layout.
pub const SCHEMA: &str = "lmetric-run/1";

/// One replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was run.
    pub run: RunInfo,
    /// In short.
    pub summary: Summary,
    /// Every request that ended.
    pub records: Records,
}

/// What was run, against what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The run's name, as a rule the policy's.
    pub label: String,
    /// Trace file.
    pub trace: String,
    /// xxh3 of its bytes, in hex.
    pub trace_hash: String,
    /// Its layout.
    pub format: String,
    /// Tokens per block.
    pub block_size: u32,
    /// First second of the window.
    pub window_start_s: f64,
    /// End of the window; absent when open.
    pub window_end_s: Option<f64>,
    /// Arrivals per trace arrival.
    pub rate_scale: f64,
    /// Each arrival was moved by U(0, this) seconds.
    pub jitter_s: f64,
    /// Seed of the jitter.
    pub jitter_seed: u64,
    /// Model seconds per real second.
    pub speed: f64,
    /// `tokens` or `text`.
    pub prompt: String,
    /// Salt of the prompts.
    pub salt: String,
    /// Base address.
    pub url: String,
    /// Model asked for.
    pub model: String,
    /// Seconds since 1970, at the start.
    pub started_unix_s: u64,
    /// How long it took, real seconds.
    pub wall_s: f64,
    /// Requests in the window.
    pub planned: u64,
    /// Requests that had not ended when it was interrupted.
    pub unfinished: u64,
    /// Requests one at a time, to be compared with the engine model.
    #[serde(default)]
    pub idle: bool,
    /// Ended early by a person.
    pub interrupted: bool,
    /// Version of the tool.
    pub tool: String,
}

/// The figures people compare. Times are over requests that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Requests that ended, well or not.
    pub requests: u64,
    /// Of these, failed.
    pub errors: u64,
    /// Failures by kind; those with a status by `status_503` and the like.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// One message for each kind.
    pub error_examples: BTreeMap<String, String>,
    /// To the first generated output.
    pub ttft_ms: Stats,
    /// Between tokens.
    pub tpot_ms: Stats,
    /// To the end of the answer.
    pub e2e_ms: Stats,
    /// How late requests were sent: large figures mean that this tool, not the fleet, was overloaded.
    pub late_ms: Stats,
    /// Prompt tokens, as the engines counted them.
    pub prompt_tokens: u64,
    /// Of these, served from prefix caches.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Cached share of the prompt tokens.
    pub hit_ratio: f64,
    /// Most requests in flight at once.
    pub peak_in_flight: u64,
    /// An idle fleet's TTFT against the engine model's own; only from `--idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleOverhead>,
}

/// What lies between an idle engine's model time and what a client measures: gateway, picker, sockets, this tool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleOverhead {
    /// Requests, one at a time.
    pub requests: u64,
    /// Mean measured TTFT, model milliseconds.
    pub measured_ttft_ms: f64,
    /// Mean TTFT by the model for the same uncached tokens.
    pub model_ttft_ms: f64,
    /// `measured / model − 1`.
    pub overhead: f64,
}

/// Requests as rows, to keep the file small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Records {
    /// Names of a row's places.
    pub columns: Vec<String>,
    /// One for each request, in the order they were to arrive.
    pub rows: Vec<Record>,
}

impl Records {
    /// Names of a row's places, in order.
    pub const COLUMNS: [&str; 11] = [
        "line",
        "arrival_ms",
        "late_ms",
        "ttft_ms",
        "tpot_ms",
        "e2e_ms",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "status",
        "error",
    ];

    /// Rows in arrival order.
    pub fn new(mut rows: Vec<Record>) -> Self {
        rows.sort_by(|a, b| a.arrival_ms.total_cmp(&b.arrival_ms).then(a.line.cmp(&b.line)));
        Self {
            columns: Self::COLUMNS.map(str::to_owned).to_vec(),
            rows,
        }
    }
}

type Row = (
    u32,
    f64,
    f64,
    Option<f64>,
    Option<f64>,
    f64,
    u64,
    u64,
    u64,
    Option<u16>,
    Option<FailureKind>,
);

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Record {
    /// Line of the trace.
    pub line: u32,
    /// When it was to be sent, since the replay began.
    pub arrival_ms: f64,
    /// How much later it was.
    pub late_ms: f64,
    /// To the first generated output.
    pub ttft_ms: Option<f64>,
    /// Between tokens; needs two.
    pub tpot_ms: Option<f64>,
    /// To the end.
    pub e2e_ms: f64,
    /// Prompt length by the engine.
    pub prompt_tokens: u64,
    /// Of it, cached.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub output_tokens: u64,
    /// HTTP status, if one came.
    pub status: Option<u16>,
    /// Why it failed.
    pub error: Option<FailureKind>,
}

impl From<Row> for Record {
    fn from(row: Row) -> Self {
        let (
            line,
            arrival_ms,
            late_ms,
            ttft_ms,
            tpot_ms,
            e2e_ms,
            prompt_tokens,
            cached_tokens,
            output_tokens,
            status,
            error,
        ) = row;
        Self {
            line,
            arrival_ms,
            late_ms,
            ttft_ms,
            tpot_ms,
            e2e_ms,
            prompt_tokens,
            cached_tokens,
            output_tokens,
            status,
            error,
        }
    }
}

impl From<Record> for Row {
    fn from(record: Record) -> Self {
        let Record {
            line,
            arrival_ms,
            late_ms,
            ttft_ms,
            tpot_ms,
            e2e_ms,
            prompt_tokens,
            cached_tokens,
            output_tokens,
            status,
            error,
        } = record;
        (
            line,
            arrival_ms,
            late_ms,
            ttft_ms,
            tpot_ms,
            e2e_ms,
            prompt_tokens,
            cached_tokens,
            output_tokens,
            status,
            error,
        )
    }
}

impl RunFile {
    /// Reads a run file.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let remedy = || format!("{}: give a file written by lmetric replay --out", path.display());
        let bytes = std::fs::read(path).with_context(remedy)?;
        let run: Self = serde_json::from_slice(&bytes).with_context(remedy)?;
        if run.schema != SCHEMA {
            bail!(
                "{}: schema {:?} is not {SCHEMA:?}; replay again with this version of lmetric",
                path.display(),
                run.schema
            );
        }
        if run.records.columns != Records::COLUMNS {
            bail!(
                "{}: field records.columns is not what {SCHEMA:?} has; replay again",
                path.display()
            );
        }
        Ok(run)
    }

    /// Writes it beside the old one and then over it: a reader never sees half a file.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut bytes = serde_json::to_vec(self).context("a run is always JSON")?;
        bytes.push(b'\n');
        write_whole(path, &bytes)
    }
}

/// Writes a file in one step, making its folder. A device or a pipe is written straight.
pub fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}; name another file", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(failed)?;
    }
    if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return std::fs::write(path, bytes).with_context(failed);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    std::fs::write(&beside, bytes).with_context(failed)?;
    std::fs::rename(&beside, path).with_context(failed)
}
