//! One engine as HTTP sees it: its ranks, its settings, and how it misbehaves.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue};
use lmetric_engine::{EngineConfig, Prompt, RequestId};
use parking_lot::Mutex;
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::args::{EventFormat, MetricsPage};
use crate::driver::DriverHandle;
use crate::fault::Fault;
use crate::fleet::unix_seconds;
use crate::http::ApiError;
use crate::lane::Snapshot;
use crate::text::Codec;

/// Number (from 1) and name of an adapter.
pub(crate) type Adapter = (u32, Arc<str>);

/// What all engines of a process share.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Names of the model; the first is shown where none was asked for.
    pub(crate) models: Vec<String>,
    /// Adapters, numbered from 1.
    pub(crate) adapters: Vec<Arc<str>>,
    /// The engine's configuration.
    pub(crate) engine: EngineConfig,
    /// Share of memory, for the page.
    pub(crate) gpu_memory_utilization: f64,
    /// Prompt and output together, at most.
    pub(crate) max_model_len: u32,
    /// Tokens per block.
    pub(crate) block_size: u32,
    /// Ids below it are tokens.
    pub(crate) vocabulary: u32,
    /// Text.
    pub(crate) codec: Codec,
    /// Seed of generated text.
    pub(crate) seed: u64,
    /// Tokens generated on average where nothing limits them.
    pub(crate) mean_output: u32,
    /// Requests queued per rank at most.
    pub(crate) max_queued: Option<u32>,
    /// Usage tells cached tokens.
    pub(crate) prompt_details: bool,
    /// Encoding of events.
    pub(crate) format: EventFormat,
    /// Topic of events.
    pub(crate) topic: String,
    /// Batches kept.
    pub(crate) buffer_steps: u32,
    /// Size of the page.
    pub(crate) metrics_page: MetricsPage,
    /// When the process started, Unix seconds.
    pub(crate) started: f64,
}

impl Settings {
    /// The model that a request names: what to show, and the adapter.
    pub(crate) fn model(&self, name: Option<&str>) -> Result<(String, Option<Adapter>), ApiError> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok((self.models[0].clone(), None));
        };
        if self.models.iter().any(|model| model == name) {
            return Ok((name.to_owned(), None));
        }
        let adapter = self.adapters.iter().position(|adapter| &**adapter == name);
        match adapter {
            Some(index) => Ok((
                name.to_owned(),
                Some((index as u32 + 1, Arc::clone(&self.adapters[index]))),
            )),
            None => Err(ApiError::no_model(name, &self.models.join(", "))),
        }
    }

    /// The same prompt is answered alike, by any engine.
    pub(crate) fn content_seed(&self, prompt: &Prompt, tokens: &[u32]) -> u64 {
        let full = prompt.hashes().len() * self.block_size as usize;
        let head = prompt.hashes().last().map_or(0, |hash| hash.0);
        let tail: Vec<u8> = tokens[full..]
            .iter()
            .flat_map(|token| token.to_le_bytes())
            .collect();
        xxh3_64_with_seed(&tail, head ^ self.seed)
    }
}

/// Where a rank publishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventSource {
    /// PUB socket.
    pub(crate) events: SocketAddr,
    /// ROUTER socket.
    pub(crate) replay: SocketAddr,
}

/// One engine.
pub struct Site {
    /// Its number.
    pub index: u32,
    /// Its HTTP address.
    pub address: SocketAddr,
    /// Its ranks among the driver's lanes.
    pub(crate) lanes: Range<usize>,
    /// State of its ranks.
    pub(crate) snapshots: Vec<Arc<Mutex<Snapshot>>>,
    /// Event sockets of its ranks, if it publishes.
    pub(crate) sources: Vec<EventSource>,
    /// API requests that are not answered to the end.
    pub(crate) open: AtomicUsize,
    settings: Arc<Settings>,
    driver: DriverHandle,
    fault: watch::Sender<Fault>,
    requests: AtomicU64,
    started: AtomicU64,
    rotation: AtomicUsize,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site")
            .field("index", &self.index)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Site {
    pub(crate) fn new(
        index: u32,
        address: SocketAddr,
        lanes: Range<usize>,
        snapshots: Vec<Arc<Mutex<Snapshot>>>,
        sources: Vec<EventSource>,
        settings: Arc<Settings>,
        driver: DriverHandle,
    ) -> Self {
        Self {
            index,
            address,
            lanes,
            snapshots,
            sources,
            open: AtomicUsize::new(0),
            settings,
            driver,
            fault: watch::Sender::new(Fault::None),
            requests: AtomicU64::new(0),
            started: AtomicU64::new(unix_seconds().to_bits()),
            rotation: AtomicUsize::new(0),
        }
    }

    /// Shared settings.
    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    pub(crate) fn driver(&self) -> &DriverHandle {
        &self.driver
    }

    /// What is wrong with it now.
    pub fn fault(&self) -> Fault {
        self.fault.borrow().clone()
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    pub(crate) fn watch_fault(&self) -> watch::Receiver<Fault> {
        self.fault.subscribe()
    }

    /// When it started last, Unix seconds.
    pub(crate) fn started(&self) -> f64 {
        f64::from_bits(self.started.load(Ordering::Relaxed))
    }

    pub(crate) fn restarted(&self) {
        self.started.store(unix_seconds().to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn next_request(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// The rank asked for, else the one with the smallest 4 × waiting + running, in turn.
    pub(crate) fn choose_rank(&self, asked: Option<u32>) -> Result<usize, ApiError> {
        let ranks = self.lanes.len();
        if let Some(rank) = asked {
            if rank as usize >= ranks {
                let text = format!("data_parallel_rank {rank} is out of range [0, {ranks}).");
                return Err(ApiError::bad(text, None));
            }
            return Ok(self.lanes.start + rank as usize);
        }
        if ranks == 1 {
            return Ok(self.lanes.start);
        }
        let first = self.rotation.fetch_add(1, Ordering::Relaxed);
        let load = |rank: &usize| {
            let snapshot = self.snapshots[*rank].lock();
            4 * snapshot.waiting() + snapshot.load.running
        };
        let rank = (0..ranks)
            .map(|turn| (first + turn) % ranks)
            .min_by_key(load)
            .unwrap_or(0);
        Ok(self.lanes.start + rank)
    }

    /// vLLM's load header, if the request asks for one.
    pub(crate) fn orca_header(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let format = headers
            .get("endpoint-load-metrics-format")?
            .to_str()
            .ok()?
            .to_ascii_lowercase();
        let snapshot = self.snapshots[0].lock();
        let (waiting, usage) = (f64::from(snapshot.waiting()), snapshot.load.kv_usage);
        drop(snapshot);
        let text = match format.as_str() {
            "text" => format!(
                "TEXT named_metrics.num_requests_waiting={waiting:?}, named_metrics.kv_cache_usage_perc={usage:?}"
            ),
            "json" => format!(
                "JSON {{\"named_metrics\": {{\"num_requests_waiting\": {waiting:?}, \"kv_cache_usage_perc\": {usage:?}}}}}"
            ),
            _ => return None,
        };
        HeaderValue::from_str(&text).ok()
    }

    pub(crate) fn queue_is_full(&self, lane: usize) -> bool {
        let waiting = || self.snapshots[lane - self.lanes.start].lock().waiting();
        self.settings.max_queued.is_some_and(|most| waiting() >= most)
    }
}
