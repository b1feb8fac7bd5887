//! `lmetric simulate`'s flags.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use lmetric_scheduler::{HotspotAction, PolicyKind};

use super::sweep::Sweep;
use crate::{
    trace::TraceFormat,
    units::{Window, duration, positive},
};

/// What the hotspot detector does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hotspot {
    /// Takes the holders out of the running for the class.
    Filter,
    /// Places the class by load only.
    LoadOnly,
    /// Nothing.
    Off,
}

impl From<Hotspot> for HotspotAction {
    fn from(hotspot: Hotspot) -> Self {
        match hotspot {
            Hotspot::Filter => Self::Filter,
            Hotspot::LoadOnly => Self::LoadOnly,
            Hotspot::Off => Self::Off,
        }
    }
}

/// Compare policies on a trace without any engine: a deterministic run in virtual time.
///
/// N engines of the engine model stand behind the scheduler and the prefix index that route online. Each policy, rate, seed
/// and value of a sweep is a run of its own; all cores are used. The same flags give the same bytes.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit status: 0 done; 2 bad input; 130 interrupted (what had finished is written).")]
pub struct SimulateArgs {
    /// Trace: JSON lines in Mooncake's or Qwen-Bailian's layout, a recording of the picker, or CSV with a header
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// Layout of the trace [default: told by its first line]
    #[arg(long, value_enum)]
    pub format: Option<TraceFormat>,
    /// Tokens per block of the trace's hash ids [default: 512 for Mooncake, 16 otherwise]
    #[arg(long, value_name = "TOKENS", value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 20))]
    pub block_size: Option<u32>,
    /// Where to write the study (JSON); lmetric report makes a page of it
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Also write one line of figures for each run
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write every request of each run, as files for lmetric report
    #[arg(long, value_name = "FOLDER")]
    pub runs: Option<PathBuf>,

    /// Engines
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = "Fleet", value_parser = RangedU64ValueParser::<u32>::new().range(1..=4_096))]
    pub engines: u32,
    /// GPU profile: H20, H20-3e or H100; or kinds with their counts, like H20:12,H100:4
    #[arg(long, value_name = "GPU", default_value = "H20", help_heading = "Fleet")]
    pub gpu: String,
    /// GPU profile from a TOML file instead
    #[arg(long, value_name = "FILE", help_heading = "Fleet", conflicts_with = "gpu")]
    pub gpu_file: Option<PathBuf>,
    /// Model profile: qwen2-7b or qwen3-30b-a3b
    #[arg(
        long,
        value_name = "MODEL",
        default_value = "qwen3-30b-a3b",
        help_heading = "Fleet"
    )]
    pub model: String,
    /// Model profile from a TOML file instead
    #[arg(long, value_name = "FILE", help_heading = "Fleet", conflicts_with = "model")]
    pub model_file: Option<PathBuf>,
    /// Share of the GPU's memory that an engine uses
    #[arg(long, value_name = "SHARE", default_value = "0.85", help_heading = "Fleet", value_parser = share)]
    pub utilization: f64,
    /// Most tokens in a step
    #[arg(long, value_name = "TOKENS", default_value_t = 8_192, help_heading = "Fleet", value_parser = RangedU64ValueParser::<u32>::new().range(16..=1 << 20))]
    pub max_num_batched_tokens: u32,
    /// Most requests in a step
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Fleet", value_parser = RangedU64ValueParser::<u32>::new().range(1..=65_536))]
    pub max_num_seqs: u32,
    /// Leave out requests of more tokens, answer included
    #[arg(long, value_name = "TOKENS", help_heading = "Fleet")]
    pub max_model_len: Option<u32>,

    /// Policies, like lmetric,vllm,bailian(lambda=0.55); all: every one
    #[arg(long, value_name = "LIST", default_value = "lmetric,vllm", help_heading = "Policies", value_parser = policies)]
    pub policies: Policies,
    /// One policy with one parameter at many values: POLICY.PARAMETER=FROM:TO:STEP or =A,B,C; may be repeated
    #[arg(long, value_name = "SWEEP", help_heading = "Policies")]
    pub sweep: Vec<Sweep>,
    /// What the hotspot detector does
    #[arg(long, value_enum, default_value = "filter", help_heading = "Policies")]
    pub hotspot: Hotspot,
    /// Split fleet and requests: one third under this policy, two thirds under each of --policies
    #[arg(long, value_name = "POLICY", help_heading = "Policies")]
    pub canary: Option<PolicyKind>,

    /// Seconds of the trace, START:END
    #[arg(
        long,
        value_name = "START:END",
        default_value = ":",
        help_heading = "Arrivals"
    )]
    pub window: Window,
    /// Arrivals per trace arrival, one run for each
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive, help_heading = "Arrivals", conflicts_with = "fraction")]
    pub rate_scale: Vec<f64>,
    /// Rates as fractions of capacity, which is measured first unless --capacity names it
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive, help_heading = "Arrivals")]
    pub fraction: Vec<f64>,
    /// Capacity as a rate scale, where it was measured before
    #[arg(long, value_name = "SCALE", value_parser = positive, help_heading = "Arrivals", requires = "fraction")]
    pub capacity: Option<f64>,
    /// Move each arrival by U(0, this), in trace time; 3s suits Mooncake's 3-second buckets
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration, help_heading = "Arrivals")]
    pub jitter: Duration,
    /// Seeds of jitter and ties, one run for each
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1",
        help_heading = "Arrivals"
    )]
    pub seeds: Vec<u64>,
    /// Requests that arrive before this are not measured
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration, help_heading = "Arrivals")]
    pub warm_up: Duration,

    /// From the end of an engine's step to the picker's index
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration, help_heading = "Picker")]
    pub event_delay: Duration,
    /// From the reading of an engine's figures to the picker
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration, help_heading = "Picker")]
    pub scrape_delay: Duration,
    /// The picker sees answers (full mode), not only events
    #[arg(long, help_heading = "Picker")]
    pub bodies: bool,
    /// Blocks of open reservations do not count as held (for experiments)
    #[arg(long, help_heading = "Picker")]
    pub no_overlay: bool,

    /// Runs at once [default: all cores]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_024))]
    pub threads: Option<usize>,
}

/// Policies of a study, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies(pub Vec<PolicyKind>);

/// A list whose items may have commas in parentheses.
pub(super) fn policies(text: &str) -> Result<Policies, String> {
    if text.trim() == "all" {
        return Ok(Policies(PolicyKind::all().to_vec()));
    }
    let mut depth = 0_u32;
    let items = text.split(|character: char| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    let list: Vec<PolicyKind> = items
        .map(|item| {
            item.trim()
                .parse()
                .map_err(|error: lmetric_policy::PolicyError| error.to_string())
        })
        .collect::<Result<_, _>>()?;
    for (at, policy) in list.iter().enumerate() {
        if list[..at].contains(policy) {
            return Err(format!("{policy} is named twice; remove one"));
        }
    }
    Ok(Policies(list))
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| format!("{text:?} is not a share; write a number above 0 and at most 1, like 0.85"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_policies_may_have_parameters() {
        let list = policies("lmetric, dynamo(overlapCredit=0.5,creditDecay=1),vllm").unwrap();
        let names: Vec<String> = list.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            ["lmetric", "dynamo(overlapCredit=0.5,creditDecay=1.0)", "vllm"]
        );
        assert_eq!(policies("all").unwrap().0.len(), PolicyKind::all().len());
        for (bad, says) in [
            ("lmetric,nobody", "nobody"),
            ("vllm,vllm", "twice"),
            ("", "no policy"),
        ] {
            let error = policies(bad).unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }
}
