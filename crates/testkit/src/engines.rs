//! A fleet of simulated engines: one `vllm-sim` process, an address for each engine.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::{
    client::Client,
    loopback::Loopback,
    process::{Process, Tool},
    wait::wait_until,
};

/// Where an engine's ports are, on each engine's own address.
const PORT: u16 = 8000;
const EVENTS: u16 = 5557;
const REPLAY: u16 = 5657;

/// How the engines are started. Defaults: a small, quick fleet.
#[derive(Clone, Debug)]
pub struct EnginesOptions {
    /// How many.
    pub count: u8,
    /// Timing profile.
    pub profile: String,
    /// Model name.
    pub model: String,
    /// Tokens per block.
    pub block_size: u32,
    /// Model seconds per real second.
    pub speed: f64,
    /// Folder of the tokenizer; without it prompts are token ids only.
    pub tokenizer: Option<PathBuf>,
    /// Batches kept for replay.
    pub buffer_steps: u32,
    /// Any further flags.
    pub flags: Vec<String>,
}

impl Default for EnginesOptions {
    fn default() -> Self {
        Self {
            count: 2,
            profile: "qwen2-7b".to_owned(),
            model: "qwen2-7b".to_owned(),
            block_size: 16,
            speed: 4.0,
            tokenizer: None,
            buffer_steps: 10_000,
            flags: Vec::new(),
        }
    }
}

/// Running engines.
#[derive(Debug)]
pub struct Engines {
    /// Their process.
    pub process: Process,
    first: Ipv4Addr,
    /// HTTP, events, replay.
    ports: [u16; 3],
    options: EnginesOptions,
}

/// `/sim/state` of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineState {
    /// Requests in the batch.
    pub running: u64,
    /// Requests queued.
    pub waiting: u64,
    /// Prompt tokens really computed since start.
    pub prefilled_tokens: u64,
    /// Prompt tokens found in the cache since start.
    pub cached_tokens: u64,
    /// Blocks that its prefix cache holds.
    pub cached_blocks: u64,
}

impl Engines {
    /// Starts `options.count` engines on host `first` of `net` and those after it, and waits until all listen.
    pub async fn start(
        net: &Loopback,
        first: u8,
        options: EnginesOptions,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let first = net.ip(first);
        let ports = [PORT, EVENTS, REPLAY].map(|port| net.port(port));
        let [http, events, replay] = ports;
        let mut args = vec![
            format!("--engines={}", options.count),
            format!("--first-address={first}"),
            format!("--port={http}"),
            format!("--kv-port={events}"),
            format!("--replay-port={replay}"),
            format!("--profile={}", options.profile),
            format!("--served-model-name={}", options.model),
            format!("--block-size={}", options.block_size),
            format!("--speed={}", options.speed),
            format!("--buffer-steps={}", options.buffer_steps),
        ];
        if let Some(tokenizer) = &options.tokenizer {
            args.push(format!("--tokenizer={}", tokenizer.display()));
        }
        args.extend(options.flags.iter().cloned());
        let name = format!("vllm-sim-{first}");
        let process = Process::start(&name, &Tool::VllmSim.path()?, args, folder)?;
        let mut engines = Self {
            process,
            first,
            ports,
            options,
        };
        engines.listening().await?;
        Ok(engines)
    }

    async fn listening(&mut self) -> anyhow::Result<()> {
        let process = &mut self.process;
        wait_until("the engines to listen", Duration::from_secs(30), || {
            let seen = match process.ended() {
                Some(status) => Err(format!("they ended: {status}")),
                None if process.output().contains(r#"{"ready":true"#) => Ok(()),
                None => Err("no ready line".to_owned()),
            };
            std::future::ready(seen)
        })
        .await
        .with_context(|| self.process.tail(2_000))?;
        Ok(())
    }

    /// How they were started.
    pub fn options(&self) -> &EnginesOptions {
        &self.options
    }

    /// Engine `n`'s HTTP address.
    pub fn address(&self, n: u8) -> SocketAddr {
        SocketAddr::from((self.ip(n), self.ports[0]))
    }

    /// All addresses, in order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.options.count).map(|n| self.address(n)).collect()
    }

    /// A client of engine `n` itself.
    pub fn client(&self, n: u8) -> Client {
        Client::new(self.address(n))
    }

    /// Engine `n`'s entry of an endpoints file.
    pub fn entry(&self, n: u8) -> Value {
        let [_, events, replay] = self.ports;
        json!({
            "address": self.address(n).to_string(),
            "model": self.options.model,
            "events": format!("tcp://{}:{events}", self.ip(n)),
            "replay": format!("tcp://{}:{replay}", self.ip(n)),
        })
    }

    /// `/sim/state` of engine `n`.
    pub async fn state(&self, n: u8) -> anyhow::Result<EngineState> {
        let state = self.client(n).get("/sim/state").await?.json()?;
        let number = |name: &str| {
            state[name]
                .as_u64()
                .with_context(|| format!("no {name} in {state}"))
        };
        Ok(EngineState {
            running: number("running")?,
            waiting: number("waiting")?,
            prefilled_tokens: number("prefilled_tokens")?,
            cached_tokens: number("cached_tokens")?,
            cached_blocks: number("cached_blocks")?,
        })
    }

    /// [`Engines::state`] of all.
    pub async fn states(&self) -> anyhow::Result<Vec<EngineState>> {
        let mut states = Vec::new();
        for n in 0..self.options.count {
            states.push(self.state(n).await?);
        }
        Ok(states)
    }

    /// Makes engine `n` misbehave (`POST /sim/fault`); `{"kind": "none"}` ends it. Asked of a neighbour, as `n` may refuse.
    pub async fn fault(&self, n: u8, mut fault: Value) -> anyhow::Result<()> {
        fault["engine"] = n.into();
        let neighbour = if n == 0 { self.options.count - 1 } else { 0 };
        let answer = self.client(neighbour).post("/sim/fault", &fault).await?;
        ensure!(
            answer.status.is_success(),
            "fault {fault}: {} {}",
            answer.status,
            answer.text()
        );
        Ok(())
    }

    fn ip(&self, n: u8) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.first) + u32::from(n))
    }
}
