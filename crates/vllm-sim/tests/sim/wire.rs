//! Payloads against captured ones: same keys in the same order, same values but for hashes and time, and
//! readable by the decoder that the picker uses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lmetric_engine::{
    BlockHash, Engine, EngineConfig, Gpu, Model, Output, Prompt, Request, RequestId, StepOutcome,
};
use lmetric_kvevents::wire::{self, decode_batch};
use rmpv::Value;
use vllm_sim::args::EventFormat;
use vllm_sim::wire::{Encoder, Extra};

const BLOCK: u32 = 16;

struct Captured {
    format: EventFormat,
    bytes_hashes: bool,
    step: String,
    payload: Vec<u8>,
}

fn captured() -> Vec<Captured> {
    let text = std::fs::read_to_string(crate::support::data("events/captured.jsonl")).unwrap();
    text.lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let format = line["format"].as_str().unwrap();
            let hex = line["payload"].as_str().unwrap();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            Captured {
                format: if format.starts_with("map") {
                    EventFormat::Map
                } else {
                    EventFormat::Array
                },
                bytes_hashes: format.ends_with("bytes"),
                step: line["step"].as_str().unwrap().to_owned(),
                payload: (0..hex.len()).step_by(2).map(byte).collect(),
            }
        })
        .collect()
}

/// Hashes become the order of their appearance, the time 0.
fn comparable(payload: &[u8]) -> Value {
    let mut value = rmpv::decode::read_value(&mut &payload[..]).unwrap();
    let mut names = HashMap::new();
    if let Value::Array(batch) = &mut value {
        batch[0] = Value::from(0.0);
        rename(&mut batch[1], &mut names);
    }
    value
}

fn rename(value: &mut Value, names: &mut HashMap<Vec<u8>, u64>) {
    let hash = match value {
        Value::Integer(number) => number
            .as_u64()
            .filter(|number| *number > u64::from(u32::MAX))
            .map(|number| number.to_be_bytes().to_vec()),
        Value::Binary(bytes) => Some(bytes.clone()),
        _ => None,
    };
    if let Some(hash) = hash {
        let next = names.len() as u64;
        *value = Value::from(*names.entry(hash).or_insert(next));
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        Value::Map(fields) => fields.iter_mut().for_each(|(_, field)| rename(field, names)),
        _ => {}
    }
}

/// Token ids of the last store in a batch.
fn tokens(payload: &[u8]) -> Vec<u32> {
    let batch = decode_batch(payload).unwrap();
    let stored = batch.events.iter().rev().find_map(|event| match event {
        wire::Event::Stored(stored) => Some(stored.tokens.to_vec()),
        _ => None,
    });
    stored.unwrap()
}

struct Scene {
    engine: Engine,
    now: Duration,
    next: u64,
}

impl Scene {
    fn new(blocks: u32) -> Self {
        let mut config = EngineConfig::new(Gpu::h20(), Model::qwen2_7b(), 0.85);
        config.num_gpu_blocks = blocks;
        Self {
            engine: Engine::new(config).unwrap(),
            now: Duration::ZERO,
            next: 0,
        }
    }

    /// A request for one token with this prompt and one token more.
    fn ask(&mut self, prompt: &[u32]) -> StepOutcome {
        let tokens: Arc<[u32]> = prompt.iter().copied().chain([7]).collect();
        let request = Request {
            id: RequestId(self.next),
            prompt: Prompt::tokens(tokens, BlockHash::root(0, None, None), BLOCK),
            output: Output::Drawn {
                seed: 1,
                vocabulary: Arc::default(),
            },
            max_output: 1,
            report_reused: false,
        };
        self.next += 1;
        self.engine.add(request, self.now).unwrap();
        let outcome = self.engine.step(self.now).unwrap();
        self.now = outcome.ends();
        outcome
    }
}

#[test]
fn every_kind_of_batch_is_written_as_vllm_writes_it() {
    let mut kinds = 0;
    let all = captured();
    let first = |format| {
        let first = all
            .iter()
            .find(|line| line.format == format && line.step == "completion-2-full-blocks-plus-5");
        tokens(&first.unwrap().payload)
    };
    for line in &all {
        let mut scene = Scene::new(1000);
        let own = tokens(&line.payload);
        let mut extra = Extra::default();
        let outcome = match line.step.as_str() {
            "completion-2-full-blocks-plus-5" => scene.ask(&own),
            "completion-extends-prefix" | "extends-prefix" => {
                let mut prompt = first(EventFormat::Map);
                scene.ask(&prompt);
                prompt.extend(&own);
                scene.ask(&prompt)
            }
            "session-id-field" => {
                extra.session = Some("sess-1");
                scene.ask(&own)
            }
            "lora-a-with-salt" => {
                extra = Extra {
                    adapter: Some((1, "lora-a")),
                    salt: Some("tenant-a"),
                    session: None,
                };
                scene.ask(&own)
            }
            "first-prompt-again-after-reset" | "after-reset" => {
                scene.ask(&own);
                let resets = if line.step == "after-reset" { 1 } else { 2 };
                assert!((0..resets).all(|_| scene.engine.reset_prefix_cache(false)));
                scene.ask(&own)
            }
            "evict-all-but" => {
                // as many evictions as were captured, then the same store
                let removed = decode_batch(&line.payload).unwrap().events.len() as u32 - 1;
                let blocks = own.len() as u32 / BLOCK + 1;
                let mut scene = Scene::new(1 + blocks);
                scene.ask(&vec![1; (removed * BLOCK) as usize]);
                scene.ask(&own)
            }
            other => panic!("no scene for {other}"),
        };
        let encoder = Encoder {
            format: line.format,
            bytes_hashes: line.bytes_hashes,
            block_size: BLOCK,
        };
        let payload = encoder.batch(1.796e9, &outcome.events, 0, |_| extra).unwrap();
        assert_eq!(comparable(&payload), comparable(&line.payload), "{}", line.step);
        let (ours, theirs) = (
            decode_batch(&payload).unwrap(),
            decode_batch(&line.payload).unwrap(),
        );
        assert_eq!((ours.skipped, ours.unknown_fields), (0, 0));
        assert_eq!(ours.events.len(), theirs.events.len());
        assert_eq!(ours.rank, theirs.rank);
        kinds += 1;
    }
    assert_eq!(kinds, 13);
}

#[test]
fn a_repetition_is_shown_in_maps_only() {
    let mut scene = Scene::new(100);
    let prompt: Vec<u32> = (0..40).collect();
    scene.ask(&prompt);
    let tokens: Arc<[u32]> = prompt.iter().copied().chain(100..120).collect();
    let request = Request {
        id: RequestId(99),
        prompt: Prompt::tokens(tokens, BlockHash::root(0, None, None), BLOCK),
        output: Output::Drawn {
            seed: 1,
            vocabulary: Arc::default(),
        },
        max_output: 1,
        report_reused: true,
    };
    scene.engine.add(request, scene.now).unwrap();
    let outcome = scene.engine.step(scene.now).unwrap();
    for (format, events) in [(EventFormat::Map, 2), (EventFormat::Array, 1)] {
        let encoder = Encoder {
            format,
            bytes_hashes: false,
            block_size: BLOCK,
        };
        let payload = encoder
            .batch(0.0, &outcome.events, 3, |_| Extra::default())
            .unwrap();
        let batch = decode_batch(&payload).unwrap();
        assert_eq!(batch.events.len(), events);
        assert_eq!(batch.rank, Some(3));
    }
}

#[test]
fn bytes_and_integer_hashes_name_the_same_blocks() {
    let outcome = Scene::new(100).ask(&(0..64).collect::<Vec<_>>());
    let hashes = |bytes_hashes| -> Vec<u64> {
        let encoder = Encoder {
            format: EventFormat::Map,
            bytes_hashes,
            block_size: BLOCK,
        };
        let payload = encoder
            .batch(0.0, &outcome.events, 0, |_| Extra::default())
            .unwrap();
        let batch = decode_batch(&payload).unwrap();
        let wire::Event::Stored(stored) = &batch.events[0] else {
            panic!("a store")
        };
        stored.hashes.iter().map(wire::Hash::get).collect()
    };
    assert_eq!(hashes(true), hashes(false));
    assert!(
        hashes(false).iter().any(|hash| *hash > u64::MAX / 2),
        "the full range is used"
    );
}
