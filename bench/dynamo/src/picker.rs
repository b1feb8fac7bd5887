//! Dynamo's picker as its own selection service builds it, with the default policy, but without sockets: events are handed to it.

use std::{collections::VecDeque, sync::Arc};

use dynamo_custom_policy_builtin::default_registry;
use dynamo_kv_router::{
    KvRouterConfig, RouterEvent, RoutingPartitionId, WorkerType,
    indexer::KvIndexerInterface,
    protocols::RoutingConstraints,
    services::{
        indexer::{backend::Indexer, registry::WorkerRegistry},
        selection::{
            DEFAULT_MODEL_NAME, KvEventIngress, KvIndexSource, PromptRequest, SelectAndReserveRequest,
            SelectResponse, SelectionService, SelectionServiceBuilder, WorkerRequest,
        },
    },
};

use crate::workload::{BLOCK, Workload};

/// Requests in flight while decisions are measured.
pub const IN_FLIGHT: usize = 512;
const GROUP: &str = "default";
const BATCHED_TOKENS: u64 = 8_192;

/// Opens the index that the service would open, and subscribes to nobody.
struct Handed;

impl KvEventIngress for Handed {
    fn open(&self, registry: &WorkerRegistry, key: &RoutingPartitionId, block_size: u32) -> Indexer {
        registry.get_or_create_indexer(key.clone(), block_size)
    }
}

/// A picker over endpoints that are ready.
pub struct Picker {
    service: SelectionService,
    index: Indexer,
}

impl Picker {
    /// So many endpoints that hold nothing; one index thread means Dynamo's single-threaded index, more its concurrent one.
    pub async fn new(endpoints: u64, index_threads: usize) -> anyhow::Result<Self> {
        // nothing is held back: every request is decided at once
        let config = KvRouterConfig {
            use_kv_events: true,
            router_queue_threshold: None,
            ..KvRouterConfig::default()
        };
        let service = SelectionServiceBuilder::new(config, WorkerType::Aggregated, default_registry())
            .indexer_threads(index_threads)
            .kv_index(KvIndexSource::Owned(Arc::new(Handed)))
            .build()
            .await?;
        for worker_id in 0..endpoints {
            let request = WorkerRequest {
                worker_id,
                model_name: DEFAULT_MODEL_NAME.to_owned(),
                routing_group: GROUP.to_owned(),
                endpoint: Some(format!("http://10.0.0.{worker_id}:8000")),
                block_size: Some(BLOCK),
                max_num_batched_tokens: Some(BATCHED_TOKENS),
                ..WorkerRequest::default()
            };
            service.upsert_worker(request).await?;
        }
        let index = service
            .core()
            .partition(&RoutingPartitionId::new(DEFAULT_MODEL_NAME, GROUP))
            .ok_or_else(|| anyhow::anyhow!("no partition was made for {endpoints} endpoints"))?
            .indexer()
            .clone();
        Ok(Self { service, index })
    }

    /// One that holds what the workload stores, all of it applied.
    pub async fn filled(workload: &Workload, endpoints: u64, index_threads: usize) -> anyhow::Result<Self> {
        let picker = Self::new(endpoints, index_threads).await?;
        for event in workload.router_events() {
            picker.apply(event).await;
        }
        picker.drain().await;
        Ok(picker)
    }

    /// Hands an event to the index.
    pub async fn apply(&self, event: RouterEvent) {
        self.index
            .apply_event_routed(event)
            .await
            .expect("the index lives as long as the picker");
    }

    /// Waits until the index holds all that was handed to it.
    pub async fn drain(&self) {
        match &self.index {
            Indexer::Single { primary, .. } => drop(primary.flush().await),
            Indexer::Concurrent { primary, .. } => primary.flush().await,
            Indexer::Remote { .. } | Indexer::None => {}
        }
    }

    /// Hash, look up, select, reserve.
    pub async fn pick(&self, request: SelectAndReserveRequest) -> SelectResponse {
        self.service
            .core()
            .select_and_reserve(request)
            .await
            .expect("somebody is ready")
    }

    /// The caller's part: the tokens, which it owns, and an id.
    pub fn request(id: String, tokens: &[u32]) -> SelectAndReserveRequest {
        SelectAndReserveRequest {
            model_name: DEFAULT_MODEL_NAME.to_owned(),
            routing_group: GROUP.to_owned(),
            selection_id: Some(id),
            prompt: PromptRequest {
                token_ids: Some(tokens.to_vec()),
                ..PromptRequest::default()
            },
            router_config_override: None,
            expected_output_tokens: None,
            priority_jump: None,
            strict_priority: None,
            session_id: None,
            session_context: None,
            affinity_target: None,
            pinned_worker: None,
            allowed_worker_ids: None,
            routing_constraints: RoutingConstraints::default(),
        }
    }
}

/// Requests that are open, the oldest first.
pub struct InFlight {
    open: VecDeque<String>,
    most: usize,
}

impl InFlight {
    /// None yet, `most` later.
    pub fn new(most: usize) -> Self {
        Self {
            open: VecDeque::with_capacity(most + 1),
            most,
        }
    }

    /// One more; the one before begins to answer, the oldest ends.
    pub async fn add(&mut self, picker: &Picker, id: String) {
        if let Some(last) = self.open.back() {
            picker
                .service
                .prefill_complete(last)
                .await
                .expect("it is reserved");
        }
        self.open.push_back(id);
        if self.open.len() > self.most
            && let Some(oldest) = self.open.pop_front()
        {
            picker
                .service
                .free_reservation(&oldest)
                .await
                .expect("it is reserved");
        }
    }

    /// All end.
    pub async fn end(self, picker: &Picker) {
        for id in self.open {
            picker
                .service
                .free_reservation(&id)
                .await
                .expect("it is reserved");
        }
    }
}
