//! What can be asked of the demo.

use std::path::PathBuf;

use clap::Parser;

/// Replay a real chat trace through Envoy and the picker under one policy after the other.
#[derive(Clone, Debug, Parser)]
#[command(name = "lmetric-demo")]
pub(crate) struct Options {
    /// Seed of the arrival jitter within the trace's 3-second buckets.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Policies, in the order they run.
    #[arg(long, value_delimiter = ',', default_value = "round-robin,vllm,lmetric")]
    pub(crate) policies: Vec<String>,
    /// Trace to replay.
    #[arg(long, default_value = "data/mooncake-conversation-10min.jsonl")]
    pub(crate) trace: PathBuf,
    /// Seconds of the trace, from its start.
    #[arg(long, default_value_t = 600)]
    pub(crate) seconds: u32,
    /// Arrivals per second, as a multiple of the trace's.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) rate_scale: f64,
    /// Engines.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=200))]
    pub(crate) engines: u8,
    /// Timing profile of the engines, and their model's name.
    #[arg(long, default_value = "qwen2-7b")]
    pub(crate) profile: String,
    /// The picker sees answers (full mode) and records every policy's run beside it, for lmetric simulate.
    #[arg(long)]
    pub(crate) record: bool,
    /// Model seconds per real second.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) speed: f64,
    /// Folder for report.html, report.json and the runs.
    #[arg(long, default_value = "target/demo")]
    pub(crate) out: PathBuf,
}
