//! `vllm serve MODEL …`: vLLM's own command line, so that the simulator can stand in for vLLM's image.
//!
//! Flags that change what a client, a picker or an operator sees have their effect; every other one of vLLM's is accepted and named in
//! one log line. No weights are read: the model's name chooses the timing profile. What only a simulator has comes from the
//! environment: [`FLAGS`] holds flags of `vllm-sim` itself, [`TOKENIZER`] a tokenizer folder.

mod events;
mod line;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use lmetric_engine::Model;
use lmetric_telemetry::command_line;
use serde::Deserialize;

use crate::args::{Args, LoraModule};
use events::EventsConfig;
use line::Flag;

/// Environment variable: further flags of `vllm-sim`, separated by spaces.
pub const FLAGS: &str = "VLLM_SIM_FLAGS";
/// Environment variable: the tokenizer's folder when the model is no folder with a tokenizer of its own.
pub const TOKENIZER: &str = "VLLM_SIM_TOKENIZER";

/// A command line that vLLM would refuse as well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Nothing to serve.
    #[error("no model: give one as `vllm serve MODEL`")]
    NoModel,
    /// A flag's value.
    #[error("--{flag}: {problem}")]
    Flag {
        /// Long name without dashes.
        flag: String,
        /// What is wrong, and what to give.
        problem: String,
    },
    /// Adapters without `--enable-lora`.
    #[error("--lora-modules without --enable-lora: add --enable-lora")]
    LoraOff,
    /// The simulator's own flags in the environment.
    #[error("{FLAGS}: {}", command_line::one_line(.0))]
    Environment(#[from] clap::Error),
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Serve {
    /// One set of engines for each HTTP port: several with `--data-parallel-multi-port-external-lb`.
    pub fleets: Vec<Args>,
    /// Flags without an effect.
    pub ignored: Vec<String>,
}

impl Serve {
    /// Reads the words after `serve`; `environment` looks up a variable.
    pub fn read(
        words: impl IntoIterator<Item = String>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ServeError> {
        let (mut leading, flags) = line::split(words);
        let own = environment(FLAGS).unwrap_or_default();
        let mut reader = Reader {
            args: Args::try_parse_from(std::iter::once("vllm-sim").chain(own.split_whitespace()))?,
            model: if leading.is_empty() {
                None
            } else {
                Some(leading.remove(0))
            },
            data_parallel: 1,
            multi_port: false,
            enable_lora: false,
            ignored: leading,
        };
        // vLLM's defaults where they are not the simulator's
        reader.args.first_address = Ipv4Addr::UNSPECIFIED;
        reader.args.no_kv_events = true;
        reader.args.no_prompt_tokens_details = true;
        for flag in &flags {
            reader.take(flag)?;
        }
        reader.finish(&own, environment(TOKENIZER))
    }
}

struct Reader {
    args: Args,
    model: Option<String>,
    data_parallel: u32,
    multi_port: bool,
    enable_lora: bool,
    ignored: Vec<String>,
}

impl Reader {
    fn take(&mut self, flag: &Flag) -> Result<(), ServeError> {
        let args = &mut self.args;
        match flag.name.as_str() {
            "model" => self.model = Some(one(flag)?),
            "host" => args.first_address = address(flag)?,
            "port" => args.port = one(flag)?,
            "served-model-name" => args.served_model_name.clone_from(&flag.values),
            "tokenizer" => args.tokenizer = Some(PathBuf::from(one::<String>(flag)?)),
            "kv-events-config" => EventsConfig::read(&one::<String>(flag)?)
                .map_err(|problem| refused(flag, problem))?
                .set(args),
            "enable-prefix-caching" => args.no_enable_prefix_caching = false,
            "no-enable-prefix-caching" => args.no_enable_prefix_caching = true,
            "enable-prompt-tokens-details" => args.no_prompt_tokens_details = false,
            "block-size" => args.block_size = one(flag)?,
            "max-num-seqs" => args.max_num_seqs = one(flag)?,
            "max-num-batched-tokens" => args.max_num_batched_tokens = count(flag)?.unwrap_or(8192),
            "max-num-queued-reqs" => args.max_num_queued_reqs = Some(one(flag)?),
            "max-model-len" => args.max_model_len = count(flag)?,
            "gpu-memory-utilization" => args.gpu_memory_utilization = one(flag)?,
            "num-gpu-blocks-override" => args.num_gpu_blocks_override = Some(one(flag)?),
            "seed" => args.seed = one(flag)?,
            "shutdown-timeout" => args.shutdown_timeout = Duration::from_secs(one(flag)?),
            "enable-lora" => self.enable_lora = true,
            "lora-modules" => args.lora_modules = adapters(flag)?,
            "data-parallel-size" => self.data_parallel = one(flag)?,
            "data-parallel-rank" => args.data_parallel_rank = one(flag)?,
            "data-parallel-multi-port-external-lb" => self.multi_port = true,
            name => self.ignored.push(format!("--{name}")),
        }
        Ok(())
    }

    fn finish(self, own: &str, tokenizer: Option<String>) -> Result<Serve, ServeError> {
        let Self {
            mut args,
            model,
            data_parallel,
            multi_port,
            enable_lora,
            ignored,
        } = self;
        let model = model.ok_or(ServeError::NoModel)?;
        if !args.lora_modules.is_empty() && !enable_lora {
            return Err(ServeError::LoraOff);
        }
        if !own.contains("--profile") {
            profile(&model).clone_into(&mut args.profile);
        }
        if !own.contains("--log") {
            "info".clone_into(&mut args.log);
        }
        if args.served_model_name.is_empty() {
            args.served_model_name.push(model.clone());
        }
        // a name on the hub is no folder here
        let folders = [
            args.tokenizer.take(),
            Some(model.into()),
            tokenizer.map(PathBuf::from),
        ];
        args.tokenizer = folders.into_iter().flatten().find(|folder| has_tokenizer(folder));
        let fleets = if multi_port {
            (0..data_parallel)
                .map(|rank| shifted(&args, rank))
                .collect::<Result<_, _>>()?
        } else {
            args.data_parallel_size = data_parallel;
            vec![args]
        };
        Ok(Serve { fleets, ignored })
    }
}

/// Rank `rank` behind ports of its own.
fn shifted(args: &Args, rank: u32) -> Result<Args, ServeError> {
    let port = |flag: &str, first: u16| {
        u16::try_from(u32::from(first) + rank).map_err(|_| ServeError::Flag {
            flag: flag.to_owned(),
            problem: format!("{first} leaves no port for rank {rank}: give a smaller one"),
        })
    };
    let mut args = args.clone();
    args.port = port("port", args.port)?;
    args.kv_port = port("kv-events-config", args.kv_port)?;
    args.replay_port = port("kv-events-config", args.replay_port)?;
    args.data_parallel_rank += rank;
    Ok(args)
}

fn profile(model: &str) -> &'static str {
    let model = model.to_ascii_lowercase();
    Model::PROFILES
        .into_iter()
        .find(|profile| model.contains(profile))
        .unwrap_or(Model::PROFILES[0])
}

fn has_tokenizer(folder: &Path) -> bool {
    folder.join("tokenizer.json").is_file()
}

fn refused(flag: &Flag, problem: impl std::fmt::Display) -> ServeError {
    ServeError::Flag {
        flag: flag.name.clone(),
        problem: problem.to_string(),
    }
}

fn one<T: FromStr<Err: std::fmt::Display>>(flag: &Flag) -> Result<T, ServeError> {
    let [value] = flag.values.as_slice() else {
        return Err(refused(flag, format!("{:?} is not one value", flag.values)));
    };
    value
        .parse()
        .map_err(|error| refused(flag, format!("{value:?}: {error}")))
}

/// All addresses for the words that mean them; the engines have IPv4 alone.
fn address(flag: &Flag) -> Result<Ipv4Addr, ServeError> {
    match one::<String>(flag)?.as_str() {
        "" | "::" | "[::]" => Ok(Ipv4Addr::UNSPECIFIED),
        "localhost" => Ok(Ipv4Addr::LOCALHOST),
        other => other
            .parse()
            .map_err(|_| refused(flag, format!("{other:?} is no IPv4 address"))),
    }
}

/// `60000`, `60k`, `64K`; none for `auto` and `-1`.
fn count(flag: &Flag) -> Result<Option<u32>, ServeError> {
    let text: String = one(flag)?;
    if text == "auto" || text == "-1" {
        return Ok(None);
    }
    let digits = text.trim_end_matches(char::is_alphabetic);
    let factor = match &text[digits.len()..] {
        "" => 1.0,
        "k" => 1e3,
        "K" => 1024.0,
        "m" => 1e6,
        "M" => 1024.0 * 1024.0,
        _ => {
            return Err(refused(
                flag,
                format!("{text:?} is no number: write 60000 or 60k"),
            ));
        }
    };
    let number = digits.parse::<f64>().ok().filter(|number| *number >= 1.0);
    number
        .map(|number| Some((number * factor) as u32))
        .ok_or_else(|| refused(flag, format!("{text:?} is no number: write 60000 or 60k")))
}

/// `name=path` or `{"name": …, "path": …}`, as vLLM takes them.
fn adapters(flag: &Flag) -> Result<Vec<LoraModule>, ServeError> {
    #[derive(Deserialize)]
    struct Module {
        name: String,
        path: String,
    }
    let read = |value: &String| {
        if value.starts_with('{') {
            let Module { name, path } =
                serde_json::from_str(value).map_err(|error| refused(flag, format!("{value:?}: {error}")))?;
            Ok(LoraModule { name, path })
        } else {
            value.parse().map_err(|problem: String| refused(flag, problem))
        }
    };
    flag.values.iter().map(read).collect()
}

#[cfg(test)]
mod tests;
