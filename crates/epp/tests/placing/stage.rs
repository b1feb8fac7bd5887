//! A picker without its gRPC server, over recorded sources.

use std::{collections::HashMap, future::Future, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use lmetric_api::{Scrape, Tokens};
use lmetric_epp::{
    clock::Clock,
    discovery::{Endpoint, PodRegistry},
    events::IndexSink,
    fleet::{Fleet, FleetParts, Groups, Reconciler, Source, StartSource},
    metrics::{PlaceMetrics, ScrapeMetrics},
    picker::{Picker, PickerParts},
    record,
    request::{ParsedRequest, PromptInput, RequestKind},
    scrape::{EngineClient, ModelsReader, ScrapeSettings},
    tokens::{EngineTokens, GroupMap, Ladder, Pool},
};
use lmetric_kvevents::{
    EventSink, Op, SourceState,
    transport::{SourceSpec, SourceStats},
};
use lmetric_prefix::{BlockKey, BlockSize, Chain, KeySeed, KeySpace, SharedIndex};
use lmetric_scheduler::{Scheduler, SchedulerConfig};
use lmetric_telemetry::Tasks;
use lmetric_tokenize::Tokenized;
use parking_lot::Mutex;

/// What happened to sources, in order, with the address of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Started(String),
    Stopped(String),
    Restarted(String),
    Reported(String, usize),
    Inferred(String, usize),
}

/// Starts recorded sources. By default they are live at once.
#[derive(Default)]
pub(crate) struct Recorder {
    news: Mutex<Vec<News>>,
    sinks: Mutex<HashMap<String, (SourceSpec, Sink)>>,
    state: Mutex<Option<SourceState>>,
}

type Sink = Arc<dyn EventSink>;

impl Recorder {
    pub(crate) fn news(&self) -> Vec<News> {
        self.news.lock().clone()
    }

    /// The state that all sources are in, and those that will be started.
    pub(crate) fn be(&self, state: SourceState) {
        *self.state.lock() = Some(state);
        for (spec, sink) in self.sinks.lock().values() {
            sink.state_changed(spec.id, state);
        }
    }

    fn state(&self) -> SourceState {
        self.state.lock().unwrap_or(SourceState::Live)
    }

    /// Applies operations as the source of an event endpoint.
    pub(crate) fn apply(&self, endpoint: &str, ops: &[Op]) {
        let (spec, sink) = self
            .sinks
            .lock()
            .get(endpoint)
            .cloned()
            .expect("a source was started");
        sink.apply(spec.id, ops);
    }

    pub(crate) fn spec(&self, endpoint: &str) -> SourceSpec {
        self.sinks
            .lock()
            .get(endpoint)
            .expect("a source was started")
            .0
            .clone()
    }
}

struct Recorded {
    name: String,
    spec: SourceSpec,
    sink: Arc<dyn EventSink>,
    recorder: Arc<Recorder>,
}

impl Source for Recorded {
    fn stop(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            // the slot must not be given away while this takes its time
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.sink.apply(self.spec.id, &[Op::Clear]);
            self.recorder.news.lock().push(News::Stopped(self.name));
        })
    }
    fn restarted(&self) {
        self.recorder.news.lock().push(News::Restarted(self.name.clone()));
    }
    fn set_blocks(&self, _gpu_blocks: u32) {}
    fn infer(&self, keys: Vec<BlockKey>) {
        self.recorder
            .news
            .lock()
            .push(News::Inferred(self.name.clone(), keys.len()));
    }
    fn expect_report(&self, keys: Vec<BlockKey>) {
        self.recorder
            .news
            .lock()
            .push(News::Reported(self.name.clone(), keys.len()));
    }
    fn state(&self) -> SourceState {
        self.recorder.state()
    }
    fn stats(&self) -> SourceStats {
        SourceStats::default()
    }
    fn block_size(&self) -> Option<BlockSize> {
        None
    }
}

struct Starter(Arc<Recorder>);

impl StartSource for Starter {
    fn start(&self, spec: SourceSpec, sink: Arc<dyn EventSink>) -> Box<dyn Source> {
        let name = spec.endpoint.clone();
        self.0.news.lock().push(News::Started(name.clone()));
        self.0
            .sinks
            .lock()
            .insert(name.clone(), (spec.clone(), sink.clone()));
        sink.state_changed(spec.id, self.0.state());
        Box::new(Recorded {
            name,
            spec,
            sink,
            recorder: self.0.clone(),
        })
    }
}

pub(crate) struct Stage {
    pub(crate) index: Arc<SharedIndex>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) pods: Arc<PodRegistry>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) names: Groups,
    pub(crate) reconciler: Reconciler,
    pub(crate) ladder: Arc<Ladder>,
    pub(crate) picker: Picker,
    pub(crate) clock: Clock,
    pub(crate) seed: KeySeed,
    pub(crate) registry: lmetric_telemetry::prometheus_client::registry::Registry,
    metrics: PlaceMetrics,
    tasks: Tasks,
}

/// Quick enough for a test, slow enough that a loaded machine keeps up.
pub(crate) const SCRAPE: Scrape = Scrape {
    busy: Duration::from_millis(40),
    idle: Duration::from_millis(80),
    timeout: Duration::from_secs(2),
};

pub(crate) const TOKENS: Tokens = Tokens {
    budget: Duration::from_millis(300),
    threads: 1,
    queue: 8,
};

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(GroupMap::new(), TOKENS)
    }

    pub(crate) fn with(groups: GroupMap, tokens: Tokens) -> Self {
        Self::reading(SCRAPE, groups, tokens)
    }

    pub(crate) fn reading(scrape: Scrape, groups: GroupMap, tokens: Tokens) -> Self {
        let clock = Clock::start();
        let seed = KeySeed::new(7);
        let (tasks, _ended) = Tasks::new();
        let index = Arc::new(SharedIndex::default());
        let scheduler = Arc::new(Scheduler::new(SchedulerConfig::default(), index.clone()));
        let recorder = Arc::new(Recorder::default());
        let pods = Arc::new(PodRegistry::default());
        let client = EngineClient::default();
        let fleet = Arc::new(Fleet::new(FleetParts {
            scheduler: scheduler.clone(),
            sink: Arc::new(IndexSink::new(index.clone(), scheduler.clone(), clock)),
            starter: Arc::new(Starter(recorder.clone())),
            clock,
            seed,
            topic: String::new(),
            models: ModelsReader {
                client: client.clone(),
                settings: ScrapeSettings::new(scrape, 1.0),
            },
            pods: pods.clone(),
        }));
        let mut registry = lmetric_telemetry::registry();
        let metrics = PlaceMetrics::new(&mut registry);
        let names = Groups::default();
        let reconciler = Reconciler::new(
            fleet.clone(),
            names.clone(),
            tasks.clone(),
            client.clone(),
            ScrapeSettings::new(scrape, 1.0),
            ScrapeMetrics::new(&mut registry),
        );
        let ladder = Arc::new(Ladder::new(
            groups,
            Pool::new(tokens.threads, tokens.queue).expect("threads"),
            EngineTokens::new(client, 8),
            tokens,
            metrics.clone(),
        ));
        let picker = Picker::new(PickerParts {
            scheduler: scheduler.clone(),
            fleet: fleet.clone(),
            groups: names.clone(),
            ladder: ladder.clone(),
            seed,
            clock,
            metrics: metrics.clone(),
            record: None,
        });
        Self {
            index,
            scheduler,
            recorder,
            pods,
            fleet,
            names,
            reconciler,
            ladder,
            picker,
            clock,
            seed,
            registry,
            metrics,
            tasks,
        }
    }

    /// Its picker records from now on.
    pub(crate) fn record(&mut self, recorder: Arc<record::Recorder>) {
        self.picker = Picker::new(PickerParts {
            scheduler: self.scheduler.clone(),
            fleet: self.fleet.clone(),
            groups: self.names.clone(),
            ladder: self.ladder.clone(),
            seed: self.seed,
            clock: self.clock,
            metrics: self.metrics.clone(),
            record: Some(recorder),
        });
    }

    /// Keys of a prompt of model `m`, in blocks of 16.
    pub(crate) fn keys(&self, ids: &[u32]) -> Vec<BlockKey> {
        let block_size = BlockSize::new(16).expect("not zero");
        let root = self.seed.root(&KeySpace {
            group: "m",
            lora: None,
            salt: None,
            block_size,
        });
        Chain::new(root, block_size, ids).keys
    }

    /// Waits until `count` endpoints are ready and their lists of models known.
    pub(crate) async fn ready(&self, count: usize) {
        wait_for("endpoints to be ready", || {
            let now = self.clock.now();
            let ready = self
                .scheduler
                .endpoints(now)
                .iter()
                .filter(|view| view.ready)
                .count();
            let known = self
                .fleet
                .members()
                .iter()
                .filter(|member| member.target.models().is_some())
                .count();
            ready == count && known >= count
        })
        .await;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}

pub(crate) async fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited 10 s for {what}");
}

/// An endpoint whose event endpoint is named after its port.
pub(crate) fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint {
        address,
        rank: None,
        model: "m".to_owned(),
        events: Some(events(address)),
        replay: None,
        block_size: None,
        incarnation: "1".to_owned(),
        terminating: false,
        ready: true,
        pod: None,
    }
}

pub(crate) fn events(address: SocketAddr) -> String {
    format!("tcp://{}:{}", address.ip(), address.port())
}

/// A completion over token ids.
pub(crate) fn completion(id: &str, ids: impl IntoIterator<Item = u32>) -> ParsedRequest {
    ParsedRequest {
        request_id: id.to_owned(),
        kind: RequestKind::Completions,
        path: "/v1/completions".to_owned(),
        model: Some("m".to_owned()),
        prompts: vec![PromptInput::Tokens(Tokenized::plain(ids.into_iter().collect()))],
        prompt_count: 1,
        n: 1,
        stream: false,
        cache_salt: None,
        session: None,
        report_mode: false,
        images: 0,
        subset: None,
        body: Bytes::new(),
    }
}

/// The same over text.
pub(crate) fn text(id: &str, text: &str) -> ParsedRequest {
    ParsedRequest {
        prompts: vec![PromptInput::Text {
            text: text.to_owned(),
            add_special_tokens: true,
        }],
        ..completion(id, [])
    }
}
