//! All engines of a process: checked, bound, started, told to misbehave, shut down.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lmetric_engine::{Engine, EngineConfig, EngineError, Gpu, Model};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::Args;
use crate::clock::ModelClock;
use crate::driver::Driver;
use crate::lane::{Lane, Snapshot};
use crate::listen;
use crate::publisher::{Framing, Publisher, Sockets};
use crate::site::{EventSource, Settings, Site};
use crate::text::{Codec, TextError};
use crate::wire::Encoder;

use crate::faults::Faults;

/// Default of `--max-model-len` where the cache is large enough.
const MAX_MODEL_LEN: u32 = 131_072;

/// Why the engines do not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A flag's value.
    #[error("{flag}: {problem}")]
    Flag {
        /// Which.
        flag: &'static str,
        /// What is wrong, and what to give.
        problem: String,
    },
    /// The tokenizer.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The engine model.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A port.
    #[error(
        "{flag}: {address} is not free ({error}): stop what listens there, or give another port or address"
    )]
    Bind {
        /// The flag that names the port.
        flag: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The event sockets.
    #[error("KV events on {address}: {error}")]
    Publish {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        error: zeromq::ZmqError,
    },
    /// The thread.
    #[error("the engine thread does not start: {0}")]
    Thread(#[source] std::io::Error),
}

/// Running engines.
pub struct Fleet {
    sites: Vec<Arc<Site>>,
    faults: Faults,
    tasks: TaskTracker,
    cancel: CancellationToken,
    driver: Driver,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet")
            .field("sites", &self.sites)
            .finish_non_exhaustive()
    }
}

/// Now, as vLLM shows times.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn engine_config(args: &Args) -> Result<(EngineConfig, u32), StartError> {
    let flag = |flag, problem: String| StartError::Flag { flag, problem };
    let model = Model::profile(&args.profile).ok_or_else(|| {
        flag(
            "--profile",
            format!(
                "{:?} is unknown: give {}",
                args.profile,
                Model::PROFILES.join(" or ")
            ),
        )
    })?;
    let utilization = args.gpu_memory_utilization;
    if !(utilization > 0.0 && utilization <= 1.0) {
        return Err(flag(
            "--gpu-memory-utilization",
            format!("{utilization} is no share: give 0.05 to 1"),
        ));
    }
    if !(args.speed > 0.0 && args.speed <= 1e6) {
        return Err(flag(
            "--speed",
            format!("{} makes no clock: give 0.01 to 1000", args.speed),
        ));
    }
    let mut config = EngineConfig::new(Gpu::h20(), model, utilization);
    let tokens = config.gpu.kv_tokens(&config.model, utilization);
    config.block_size = args.block_size;
    config.num_gpu_blocks = args
        .num_gpu_blocks_override
        .unwrap_or((tokens / u64::from(args.block_size)) as u32);
    config.max_num_seqs = args.max_num_seqs;
    config.max_num_batched_tokens = args.max_num_batched_tokens;
    config.enable_prefix_caching = !args.no_enable_prefix_caching;
    let holds = u64::from(config.usable_blocks()) * u64::from(config.block_size);
    let holds = holds.min(u64::from(u32::MAX)) as u32;
    let max_model_len = args.max_model_len.unwrap_or(MAX_MODEL_LEN.min(holds));
    if max_model_len > holds || max_model_len < 2 {
        return Err(flag(
            "--max-model-len",
            format!(
                "{max_model_len} tokens do not fit into the {holds} of the KV cache ({} blocks of {}): give at most {holds}, or more memory with --gpu-memory-utilization or --num-gpu-blocks-override",
                config.num_gpu_blocks, config.block_size
            ),
        ));
    }
    Ok((config, max_model_len))
}

fn settings(args: &Args) -> Result<Settings, StartError> {
    let (engine, max_model_len) = engine_config(args)?;
    let codec = match &args.tokenizer {
        Some(folder) => Codec::load(folder)?,
        None => Codec::made_up(),
    };
    let mut models = args.served_model_name.clone();
    if models.is_empty() {
        models.push(args.profile.clone());
    }
    let vocabulary = codec
        .vocabulary()
        .iter()
        .max()
        .map_or(0, |id| id + 1)
        .max(engine.model.vocabulary);
    Ok(Settings {
        models,
        adapters: args
            .lora_modules
            .iter()
            .map(|module| module.name.as_str().into())
            .collect(),
        gpu_memory_utilization: args.gpu_memory_utilization,
        max_model_len,
        block_size: engine.block_size,
        vocabulary,
        codec,
        seed: args.seed,
        mean_output: args.mean_output,
        max_queued: args.max_num_queued_reqs,
        prompt_details: !args.no_prompt_tokens_details,
        format: args.event_format,
        topic: args.topic.clone(),
        buffer_steps: args.buffer_steps,
        metrics_page: args.metrics_page,
        started: unix_seconds(),
        engine,
    })
}

fn bind(flag: &'static str, ip: IpAddr, port: u16) -> Result<TcpListener, StartError> {
    let address = SocketAddr::new(ip, port);
    let listener = TcpListener::bind(address).map_err(|error| StartError::Bind { flag, address, error })?;
    listener
        .set_nonblocking(true)
        .map_err(|error| StartError::Bind { flag, address, error })?;
    Ok(listener)
}

/// Port 0 stays 0: the system gives each rank its own.
fn rank_port(flag: &'static str, port: u16, rank: u32) -> Result<u16, StartError> {
    if port == 0 {
        return Ok(0);
    }
    let ports = u32::from(port) + rank;
    u16::try_from(ports).map_err(|_| StartError::Flag {
        flag,
        problem: format!("{port} leaves no port for rank {rank}: give a smaller one"),
    })
}

pub(crate) fn framing(settings: &Settings) -> Framing {
    Framing {
        format: settings.format,
        topic: Bytes::from(settings.topic.clone()),
        buffer_steps: settings.buffer_steps as usize,
    }
}

impl Fleet {
    /// Binds every port first, so that nothing runs when one is taken; then starts all engines.
    pub async fn start(args: &Args) -> Result<Self, StartError> {
        let settings = Arc::new(settings(args)?);
        let ranks = args.data_parallel_size;
        let publishes = !args.no_kv_events && settings.engine.enable_prefix_caching;
        if publishes && args.kv_port != 0 && args.kv_port.abs_diff(args.replay_port) < ranks as u16 {
            return Err(StartError::Flag {
                flag: "--replay-port",
                problem: format!(
                    "{} is among the event ports of {ranks} ranks from {}: leave at least {ranks} between them",
                    args.replay_port, args.kv_port
                ),
            });
        }
        let mut ports = Vec::new();
        for engine in 0..args.engines {
            let ip = u32::from(args.first_address)
                .checked_add(engine)
                .map(|ip| IpAddr::from(Ipv4Addr::from(ip)))
                .ok_or_else(|| StartError::Flag {
                    flag: "--first-address",
                    problem: format!("{} leaves no address for engine {engine}", args.first_address),
                })?;
            let http = bind("--port", ip, args.port)?;
            let mut sockets = Vec::new();
            for rank in 0..if publishes { ranks } else { 0 } {
                sockets.push(Sockets {
                    events: bind("--kv-port", ip, rank_port("--kv-port", args.kv_port, rank)?)?,
                    replay: bind(
                        "--replay-port",
                        ip,
                        rank_port("--replay-port", args.replay_port, rank)?,
                    )?,
                });
            }
            ports.push((http, sockets));
        }
        Self::run(args, &settings, ports).await
    }

    async fn run(
        args: &Args,
        settings: &Arc<Settings>,
        ports: Vec<(TcpListener, Vec<Sockets>)>,
    ) -> Result<Self, StartError> {
        let tasks = TaskTracker::new();
        let cancel = CancellationToken::new();
        let encoder = Encoder {
            format: settings.format,
            bytes_hashes: args.bytes_hashes,
            block_size: settings.block_size,
        };
        let unbound = |error| StartError::Bind {
            flag: "--port",
            address: SocketAddr::from((args.first_address, args.port)),
            error,
        };
        let mut lanes = Vec::new();
        let mut plans = Vec::new();
        for (http, sockets) in ports {
            let first = lanes.len();
            let mut snapshots = Vec::new();
            let mut sources = Vec::new();
            let mut sockets = sockets.into_iter();
            for rank in 0..args.data_parallel_size {
                let publisher = match sockets.next() {
                    Some(sockets) => {
                        let (events, replay) = sockets.addresses().map_err(unbound)?;
                        sources.push(EventSource { events, replay });
                        let started = Publisher::start(sockets, framing(settings), &tasks).await;
                        Some(started.map_err(|error| StartError::Publish {
                            address: events,
                            error,
                        })?)
                    }
                    None => None,
                };
                let snapshot = Arc::new(Mutex::new(Snapshot::default()));
                snapshots.push(Arc::clone(&snapshot));
                let engine = Engine::new(settings.engine.clone())?;
                lanes.push(Lane::new(
                    args.data_parallel_rank.saturating_add(rank),
                    engine,
                    encoder,
                    args.event_delay,
                    publisher,
                    snapshot,
                ));
            }
            plans.push((http, first..lanes.len(), snapshots, sources));
        }
        let driver = Driver::start(lanes, ModelClock::new(args.speed)).map_err(StartError::Thread)?;
        let mut sites = Vec::new();
        let mut listeners = Vec::new();
        for (index, (http, lanes, snapshots, sources)) in plans.into_iter().enumerate() {
            let address = http.local_addr().map_err(unbound)?;
            listeners.push(tokio::net::TcpListener::from_std(http).map_err(unbound)?);
            sites.push(Arc::new(Site::new(
                index as u32,
                address,
                lanes,
                snapshots,
                sources,
                Arc::clone(settings),
                driver.handle(),
            )));
        }
        let faults = Faults::new(sites.clone(), tasks.clone(), cancel.clone());
        for fault in &args.fault {
            faults
                .plan_at_start(fault.clone())
                .map_err(|error| StartError::Flag {
                    flag: "--fault",
                    problem: error.to_string(),
                })?;
        }
        for (site, listener) in sites.iter().zip(listeners) {
            let site = Arc::clone(site);
            tasks.spawn(listen::serve(
                site,
                listener,
                faults.clone(),
                cancel.clone(),
                tasks.clone(),
            ));
        }
        Ok(Self {
            sites,
            faults,
            tasks,
            cancel,
            driver,
        })
    }

    /// The engines.
    pub fn sites(&self) -> &[Arc<Site>] {
        &self.sites
    }

    /// Makes engines misbehave.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The line that says where everything is.
    pub fn ready(&self) -> Value {
        let engines = self.sites.iter().map(|site| {
            let source = site.sources.first();
            json!({
                "http": format!("http://{}", site.address),
                "events": source.map(|source| format!("tcp://{}", source.events)),
                "replay": source.map(|source| format!("tcp://{}", source.replay)),
            })
        });
        json!({"ready": true, "engines": engines.collect::<Vec<_>>()})
    }

    /// Accepts nothing more, waits up to `timeout` for open requests, aborts the rest.
    pub async fn shutdown(self, timeout: Duration) {
        let Self {
            sites,
            faults,
            tasks,
            cancel,
            driver,
        } = self;
        cancel.cancel();
        let until = Instant::now() + timeout;
        while sites.iter().any(|site| site.open.load(Ordering::Relaxed) > 0) && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        faults.stop();
        // joins the engine thread; publishers end with it, and connections have nothing more to wait for
        drop(driver);
        tasks.close();
        let _ = tokio::time::timeout(Duration::from_millis(200), tasks.wait()).await;
    }
}
