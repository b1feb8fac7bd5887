//! What the server says about itself.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::site::{Settings, Site};

/// `/v1/models`: the model under all its names, then the adapters.
pub(crate) fn models(settings: &Settings) -> Value {
    let base = settings.models[0].as_str();
    let model = |id: &str, parent: Option<&str>| {
        let created = settings.started as u64;
        json!({
            "id": id,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": if parent.is_some() { id } else { base },
            "parent": parent,
            "max_model_len": parent.is_none().then_some(settings.max_model_len),
            "permission": [{
                "id": format!("modelperm-{:016x}", xxh3_64(id.as_bytes())),
                "object": "model_permission",
                "created": created,
                "allow_create_engine": false,
                "allow_sampling": true,
                "allow_logprobs": true,
                "allow_search_indices": false,
                "allow_view": true,
                "allow_fine_tuning": false,
                "organization": "*",
                "group": null,
                "is_blocking": false,
            }],
        })
    };
    let names = settings.models.iter().map(|name| model(name, None));
    let adapters = settings.adapters.iter().map(|name| model(name, Some(base)));
    json!({"object": "list", "data": names.chain(adapters).collect::<Vec<_>>()})
}

/// `/kv_event_sources`, by rank.
pub(crate) fn event_sources(site: &Site) -> Value {
    let settings = site.settings();
    let sources = site.sources.iter().enumerate().map(|(rank, source)| {
        let shown = json!({
            "enable_kv_cache_events": true,
            "publisher": "zmq",
            "endpoint": format!("tcp://{}", source.events),
            "replay_endpoint": format!("tcp://{}", source.replay),
            "buffer_steps": settings.buffer_steps,
            "hwm": 100_000,
            "max_queue_size": 100_000,
            "topic": settings.topic,
        });
        (rank.to_string(), shown)
    });
    Value::Object(sources.collect())
}

/// `/sim/state`: the truth, all ranks together.
pub(crate) fn state(site: &Site) -> Value {
    let ranks: Vec<Value> = site
        .snapshots
        .iter()
        .map(|snapshot| {
            let snapshot = snapshot.lock();
            json!({
                "running": snapshot.load.running,
                "waiting": snapshot.waiting(),
                "uncomputed_tokens": snapshot.load.uncomputed_tokens,
                "kv_usage": snapshot.load.kv_usage,
                "prefilled_tokens": snapshot.counters.prefilled_tokens,
                "prompt_tokens": snapshot.counters.prompt_tokens,
                "cached_tokens": snapshot.counters.cached_tokens,
                "generated_tokens": snapshot.counters.generation_tokens,
                "steps": snapshot.counters.steps,
                "preemptions": snapshot.counters.preemptions,
                "finished": snapshot.counters.finished,
                "aborted": snapshot.counters.aborted,
                "cached_blocks": snapshot.cached_blocks,
                "lost_batches": snapshot.lost_batches,
                "incarnation": snapshot.incarnation,
                "latest_step_ms": snapshot.lateness.1.as_secs_f64() * 1e3,
            })
        })
        .collect();
    let mut sums = serde_json::Map::new();
    for name in [
        "running",
        "waiting",
        "uncomputed_tokens",
        "prefilled_tokens",
        "prompt_tokens",
        "cached_tokens",
        "generated_tokens",
        "steps",
        "preemptions",
        "finished",
        "aborted",
        "cached_blocks",
        "lost_batches",
    ] {
        let sum: u64 = ranks.iter().filter_map(|rank| rank[name].as_u64()).sum();
        sums.insert(name.to_owned(), sum.into());
    }
    sums.insert("open".to_owned(), site.open.load(Ordering::Relaxed).into());
    sums.insert("fault".to_owned(), format!("{:?}", site.fault()).into());
    sums.insert(
        "model_seconds".to_owned(),
        site.driver().clock().now().as_secs_f64().into(),
    );
    sums.insert("ranks".to_owned(), ranks.into());
    Value::Object(sums)
}
