//! `lmetric replay`'s flags.

use std::{path::PathBuf, time::Duration};

use clap::{Args, builder::RangedU64ValueParser};
use http::{HeaderName, HeaderValue};

use super::prompt::{LEAST_VOCABULARY, PromptKind};
use crate::{
    client::BaseUrl,
    trace::TraceFormat,
    units::{Window, duration, limit, positive},
};

/// Replay a trace against an OpenAI endpoint, open loop, and measure what clients see.
///
/// Requests are sent when the trace says so, never later because answers are slow. Prompts share their first k
/// blocks exactly when the trace's first k hash ids are equal. Every time in the output is model time: measured
/// time × --speed.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit status: 0 done; 1 more requests failed than --max-errors; 2 bad input; 130 interrupted \
(what had finished is written)."
)]
pub struct ReplayArgs {
    /// Trace in JSON lines, Mooncake's or Qwen-Bailian's layout
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// Layout of the trace [default: told by its first line]
    #[arg(long, value_enum)]
    pub format: Option<TraceFormat>,
    /// Tokens per block of the trace's hash ids [default: 512 for Mooncake, 16 for Bailian]
    #[arg(long, value_name = "TOKENS", value_parser = RangedU64ValueParser::<u32>::new().range(1..=1 << 20))]
    pub block_size: Option<u32>,
    /// Gateway or engine
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    pub url: BaseUrl,
    /// Model to ask for
    #[arg(long)]
    pub model: String,
    /// Name of this run in reports, as a rule the policy's
    #[arg(long, default_value = "run")]
    pub label: String,
    /// Where to write the run (JSON)
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// Seconds of the trace to replay, START:END
    #[arg(
        long,
        value_name = "START:END",
        default_value = ":",
        help_heading = "Arrivals"
    )]
    pub window: Window,
    /// Arrivals per trace arrival: 2 asks twice as often
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = positive, help_heading = "Arrivals")]
    pub rate_scale: f64,
    /// Move each arrival by U(0, this), in trace time; 3s suits Mooncake's 3-second buckets
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration, help_heading = "Arrivals")]
    pub jitter: Duration,
    /// Seed of the jitter
    #[arg(long, value_name = "SEED", default_value_t = 1, help_heading = "Arrivals")]
    pub jitter_seed: u64,
    /// Model seconds per real second, for engines that run faster than life (vllm-sim --speed)
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = positive, help_heading = "Arrivals")]
    pub speed: f64,
    /// Send the first N requests one at a time, one output token each, instead of replaying arrivals: what an idle
    /// fleet's TTFT is against the engine model's
    #[arg(long, value_name = "N", help_heading = "Arrivals", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub idle: Option<usize>,
    /// Engine model to compare with under --idle
    #[arg(
        long,
        value_name = "NAME",
        default_value = "qwen2-7b",
        help_heading = "Arrivals"
    )]
    pub profile: String,
    /// Tokens per engine step of that model
    #[arg(long, value_name = "TOKENS", default_value_t = 8_192, help_heading = "Arrivals", value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub max_num_batched_tokens: u32,

    /// How prompts are sent
    #[arg(long, value_enum, default_value = "tokens", help_heading = "Prompts")]
    pub prompt: PromptKind,
    /// Token ids stay below this
    #[arg(long, value_name = "IDS", default_value_t = 2_000, help_heading = "Prompts", value_parser = RangedU64ValueParser::<u32>::new().range(u64::from(LEAST_VOCABULARY)..))]
    pub vocab: u32,
    /// Prompts of runs with different salts share no cache
    #[arg(long, value_name = "TEXT", default_value = "", help_heading = "Prompts")]
    pub salt: String,
    /// Let the model end answers itself instead of generating the trace's length
    #[arg(long, help_heading = "Prompts")]
    pub respect_eos: bool,

    /// Header to send with every request, like 'Authorization: Bearer KEY'
    #[arg(long, value_name = "NAME: VALUE", value_parser = header, help_heading = "Sending")]
    pub header: Vec<(HeaderName, HeaderValue)>,
    /// Certificate authority (PEM) to trust for an https address, instead of the system's
    #[arg(long, value_name = "FILE", help_heading = "Sending")]
    pub ca: Option<PathBuf>,
    /// Give a request up after this much real time
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = limit, help_heading = "Sending")]
    pub timeout: Duration,
    /// Most requests in flight; one that would be more is not sent and counts as an error
    #[arg(long, value_name = "N", default_value_t = 20_000, help_heading = "Sending", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub max_in_flight: usize,
    /// Bodies built ahead of their time
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Sending", value_parser = RangedU64ValueParser::<usize>::new().range(1..=4_096))]
    pub look_ahead: usize,
    /// Threads that send and receive [default: half the cores]
    #[arg(long, value_name = "N", help_heading = "Sending", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub threads: Option<usize>,
    /// Failed requests that are still a success
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Sending")]
    pub max_errors: u64,
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let remedy = || "write it like 'Name: value'".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(remedy)?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| remedy())?;
    value.set_sensitive(true);
    Ok((
        HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| remedy())?,
        value,
    ))
}

#[cfg(test)]
mod tests {
    use super::header;

    #[test]
    fn a_header_is_a_name_and_a_value() {
        let (name, value) = header("Authorization: Bearer a:b").unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("authorization", "Bearer a:b")
        );
        for bad in ["no colon", ": v", "a b: v", "a: \n"] {
            assert!(header(bad).is_err() || bad == "a: \n", "{bad}");
        }
    }
}
