//! Dynamo's whole decision: tokens in, hash, look up, select and reserve, with 512 requests in flight.
use dynamo_kv_router::KvRouterConfig;
use dynamo_kv_router::identity::RoutingPartitionId;
use dynamo_kv_router::indexer::KvIndexerInterface;
use dynamo_kv_router::protocols::RoutingConstraints;
use dynamo_kv_router::services::indexer::backend::Indexer;
use dynamo_kv_router::services::selection::{
    PromptRequest, SelectAndReserveRequest, SelectionCacheConfig, SelectionCore, WorkerRequest,
};
use dynbench::{BS, Rng, Workload, build};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const IN_FLIGHT: usize = 512;

async fn core(workers: u64) -> SelectionCore {
    // the queue holds nothing back: every request is decided at once
    let config = KvRouterConfig {
        use_kv_events: true,
        router_queue_threshold: None,
        ..Default::default()
    };
    let policy = Arc::new(|config: &KvRouterConfig, role: dynamo_kv_router::WorkerRole, _: &_| {
        dynamo_kv_router::WorkerSelectionPolicy::reference(config.clone(), role.default_selector_label())
    });
    let core = SelectionCore::try_new_local(
        config,
        1,
        CancellationToken::new(),
        SelectionCacheConfig::default(),
        policy,
    )
    .expect("a core");
    for worker_id in 0..workers {
        let request = WorkerRequest {
            worker_id,
            endpoint: Some(format!("http://10.0.0.{worker_id}:8000")),
            kv_events_endpoint: Some(format!("tcp://127.0.0.1:{}", 20_000 + worker_id)),
            block_size: Some(BS),
            max_num_batched_tokens: Some(8_192),
            ..WorkerRequest::default()
        };
        core.upsert_worker(request).await.expect("a worker");
    }
    core
}

async fn fill(core: &SelectionCore, workload: &Workload) {
    let key = RoutingPartitionId::new("default", "default");
    let indexer = core.partition(&key).expect("a partition").indexer().clone();
    for event in &workload.events {
        indexer.apply_event_routed(event.clone()).await.expect("applied");
    }
    if let Indexer::Single { primary, .. } = &indexer {
        primary.flush().await;
    }
}

fn request(id: String, tokens: &[u32]) -> SelectAndReserveRequest {
    SelectAndReserveRequest {
        model_name: "default".into(),
        routing_group: "default".into(),
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

async fn decide(
    core: &SelectionCore,
    workload: &Workload,
    length: usize,
    name: &str,
    mut goes_on: impl FnMut(usize) -> bool,
    seed: u64,
) -> Vec<u64> {
    let pool: Vec<_> = workload.convs.iter().filter(|conv| conv.tokens.len() >= length).collect();
    let mut numbers = Rng(seed);
    let mut open = VecDeque::new();
    let mut times = Vec::new();
    let mut count = 0;
    while goes_on(count) {
        let tokens = &pool[numbers.below(pool.len() as u64) as usize].tokens[..length];
        let id = format!("{name}-{count}");
        // its copy of the tokens is the caller's, not the decision's
        let asked = request(id.clone(), tokens);
        let started = Instant::now();
        core.select_and_reserve(asked).await.expect("a decision");
        if count >= IN_FLIGHT {
            times.push(started.elapsed().as_nanos() as u64);
        }
        if let Some(last) = open.back() {
            core.prefill_complete(last).await.expect("known");
        }
        open.push_back(id);
        if open.len() > IN_FLIGHT {
            let oldest: String = open.pop_front().expect("some are open");
            core.free_reservation(&oldest).await.expect("known");
        }
        count += 1;
    }
    for id in open {
        let _ = core.free_reservation(&id).await;
    }
    times
}

fn main() {
    let workload = build(1_000, 320, 42);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let core = runtime.block_on(core(64));
    runtime.block_on(fill(&core, &workload));
    for (label, length) in [("8k", 8_192), ("32k", 32_768)] {
        for run in 0..5 {
            let name = format!("{label}-{run}");
            let mut times = runtime.block_on(decide(
                &core,
                &workload,
                length,
                &name,
                |count| count < IN_FLIGHT + 4_000,
                run,
            ));
            println!("DECISION {label} run {run}: {}", dynbench::pct(&mut times));
        }
    }
    let (core, workload) = (Arc::new(core), Arc::new(workload));
    for (label, length) in [("2k", 2_048), ("8k", 8_192)] {
        let over = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (core, workload, over, count) = (core.clone(), workload.clone(), over.clone(), count.clone());
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                    let goes_on = |_| {
                        count.fetch_add(1, Ordering::Relaxed);
                        !over.load(Ordering::Relaxed)
                    };
                    runtime.block_on(decide(&core, &workload, length, &format!("rate-{label}-{thread}"), goes_on, thread));
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(5));
        over.store(true, Ordering::Relaxed);
        let seconds = started.elapsed().as_secs_f64();
        for thread in threads {
            thread.join().expect("ended well");
        }
        println!("DECISIONS {label} two cores: {:.0}/s", count.load(Ordering::Relaxed) as f64 / seconds);
    }
    std::process::exit(0);
}
