//! Command line.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::fault::FaultAt;

const FAULTS: &str = "Faults (--fault 'engine=3,kind=refuse,after=5s,for=10s', or POST /sim/fault on any engine's port with the same \
fields as JSON, e.g. {\"kind\": \"status\", \"status\": 503}; \"engine\" defaults to the port's own, \"for\" to until {\"kind\": \"none\"}):
  slow-start   connections are refused for \"for\" (at start)
  refuse       connections are refused, open ones are closed
  hang         everything but /sim is accepted and never answered; steps stop
  crash        open connections and event sockets are dropped; comes back cold after \"for\"
  die          the engine core dies: streams end with an error, then as crash
  status       API requests are answered with \"status\" at once (kind=status=503 for short)
  exit-code    the whole process exits with \"code\"
  grow-memory  takes \"rate\" bytes a second, at most \"limit\" bytes
  drop-events  the next \"count\" event batches get numbers but are not sent
GET /sim/state shows running, waiting, prefilled_tokens, cached_tokens, cached_blocks and more, of all ranks together.";

/// How KV events are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventFormat {
    /// Maps, and replay replies with a topic frame (vLLM 0.26 and later).
    Map,
    /// Positional arrays, and replay replies without (vLLM 0.16).
    Array,
}

/// How much the metrics page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricsPage {
    /// The families that move.
    Light,
    /// Every family of vLLM 0.32 with its buckets, 50 KB and more.
    Full,
}

/// An adapter, `name=path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoraModule {
    /// Name that requests use as model.
    pub name: String,
    /// Ignored; shown nowhere.
    pub path: String,
}

impl std::str::FromStr for LoraModule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() => Ok(Self {
                name: name.to_owned(),
                path: path.to_owned(),
            }),
            _ => Err(format!("{text:?} is not name=path")),
        }
    }
}

/// Many vLLM engines in one process, each on its own loopback address, computing nothing but time.
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = FAULTS)]
pub struct Args {
    /// Engines.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub engines: u32,
    /// Address of the first engine; the others follow.
    #[arg(long, default_value = "127.0.1.1")]
    pub first_address: Ipv4Addr,
    /// HTTP port of every engine; 0 takes a free one.
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Port of the KV events of rank 0 of every engine; 0 takes a free one.
    #[arg(long, default_value_t = 5557)]
    pub kv_port: u16,
    /// Port of the replay of rank 0 of every engine; 0 takes a free one.
    #[arg(long, default_value_t = 5657)]
    pub replay_port: u16,
    /// Publish no KV events.
    #[arg(long)]
    pub no_kv_events: bool,
    /// Timing and memory of model and GPU: qwen2-7b or qwen3-30b-a3b on an H20.
    #[arg(long, default_value = "qwen2-7b")]
    pub profile: String,
    /// Names of the model; the profile's if none is given.
    #[arg(long, num_args = 1..)]
    pub served_model_name: Vec<String>,
    /// Adapters, name=path.
    #[arg(long, num_args = 1..)]
    pub lora_modules: Vec<LoraModule>,
    /// Tokens per KV block.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub block_size: u32,
    /// Most requests in a step.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_num_seqs: u32,
    /// Most tokens in a step.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_num_batched_tokens: u32,
    /// Requests queued per rank before more get 503; none if absent.
    #[arg(long)]
    pub max_num_queued_reqs: Option<u32>,
    /// Share of GPU memory for weights and cache.
    #[arg(long, default_value_t = 0.85)]
    pub gpu_memory_utilization: f64,
    /// Longest prompt and output together; 131072, or what the cache holds, if absent.
    #[arg(long)]
    pub max_model_len: Option<u32>,
    /// KV blocks, instead of what fits into memory.
    #[arg(long)]
    pub num_gpu_blocks_override: Option<u32>,
    /// Share no blocks between requests and publish no KV events.
    #[arg(long)]
    pub no_enable_prefix_caching: bool,
    /// Ranks behind each HTTP port; rank r publishes on kv-port + r and replay-port + r.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub data_parallel_size: u32,
    /// Number of the first rank in its KV events.
    #[arg(long, default_value_t = 0)]
    pub data_parallel_rank: u32,
    /// Folder with tokenizer.json and tokenizer_config.json; without it text becomes made-up ids.
    #[arg(long)]
    pub tokenizer: Option<PathBuf>,
    /// Model seconds per real second.
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
    /// Seed of the generated text.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Tokens generated on average where a chat request sets no limit.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub mean_output: u32,
    /// Encoding of KV events.
    #[arg(long, value_enum, default_value_t = EventFormat::Map)]
    pub event_format: EventFormat,
    /// Publish 32-byte hashes instead of integers.
    #[arg(long)]
    pub bytes_hashes: bool,
    /// Topic of KV events.
    #[arg(long, default_value = "kv-events")]
    pub topic: String,
    /// Event batches kept for replay.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub buffer_steps: u32,
    /// Model time between the end of a step and its events.
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    pub event_delay: Duration,
    /// Size of the metrics page.
    #[arg(long, value_enum, default_value_t = MetricsPage::Light)]
    pub metrics_page: MetricsPage,
    /// Answer without prompt_tokens_details, as vLLM does unless it is asked for them.
    #[arg(long)]
    pub no_prompt_tokens_details: bool,
    /// Real time that open requests get after SIGTERM.
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    pub shutdown_timeout: Duration,
    /// Log filter, a level such as info or vllm_sim=debug.
    #[arg(long, default_value = "warn")]
    pub log: String,
    /// Misbehave; may be repeated.
    #[arg(long)]
    pub fault: Vec<FaultAt>,
}

/// `300ms`, `5s`, `2m`, `1.5s`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} is no duration: write 300ms, 5s, 2m")),
    };
    digits
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * factor).ok())
        .ok_or_else(|| format!("{text:?} is no duration: write 300ms, 5s, 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, expected) in [
            ("300ms", Duration::from_millis(300)),
            ("5s", Duration::from_secs(5)),
            ("1.5", Duration::from_millis(1500)),
            ("2m", Duration::from_mins(2)),
        ] {
            assert_eq!(parse_duration(text), Ok(expected));
        }
        for text in ["", "5 parsecs", "-1s", "s", "1e400s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_line_of_the_documentation_is_accepted() {
        let line = "vllm-sim --engines 16 --first-address 127.0.1.1 --port 8000 --kv-port 5557 --replay-port 5657 \
                    --profile qwen2-7b --served-model-name qwen2-7b --block-size 16 --max-num-seqs 256 \
                    --max-num-batched-tokens 8192 --gpu-memory-utilization 0.85 --max-model-len 131072 --speed 4 \
                    --event-format map --seed 1 --buffer-steps 10000 --lora-modules a=/x b=/y \
                    --fault engine=3,kind=refuse,after=5s";
        let args = Args::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!(args.engines, 16);
        assert_eq!(args.lora_modules.len(), 2);
        assert_eq!(args.fault.len(), 1);
    }
}
