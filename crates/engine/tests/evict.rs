//! The engine against a captured vLLM with a cache of 27 blocks: evictions, shared prefixes, duplicates,
//! preemptions and a reset have to come out as the same events in the same batches.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its data fails")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lmetric_engine::{
    BlockHash, Engine, EngineConfig, Event, Gpu, Model, Output, Prompt, Request, RequestId, StepOutcome,
};
use serde_json::Value;

const BLOCK: u32 = 16;

struct Replay {
    engine: Engine,
    now: Duration,
    next_id: u64,
    /// One entry per step that had events.
    batches: Vec<Vec<Change>>,
    cached: HashMap<RequestId, u32>,
    preemptions: u32,
}

/// An event with hashes as the order of their first appearance, so that two engines can be compared.
#[derive(Clone, Debug, PartialEq)]
enum Change {
    Stored {
        parent: Option<usize>,
        blocks: Vec<usize>,
        tokens: Vec<u32>,
    },
    Removed(usize),
    Cleared,
}

#[derive(Default)]
struct Names(HashMap<u64, usize>);

impl Names {
    fn of(&mut self, hash: u64) -> usize {
        let next = self.0.len();
        *self.0.entry(hash).or_insert(next)
    }
}

impl Replay {
    fn new() -> Self {
        let mut config = EngineConfig::new(Gpu::h20(), Model::qwen2_7b(), 0.85);
        config.block_size = BLOCK;
        config.num_gpu_blocks = 28;
        config.max_num_batched_tokens = 256;
        Self {
            engine: Engine::new(config).unwrap(),
            now: Duration::ZERO,
            next_id: 0,
            batches: Vec::new(),
            cached: HashMap::new(),
            preemptions: 0,
        }
    }

    fn add(&mut self, request: &Value) -> RequestId {
        let ids = |name: &str| -> Arc<[u32]> {
            request[name]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_u64().unwrap() as u32)
                .collect()
        };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.engine
            .add(
                Request {
                    id,
                    prompt: Prompt::tokens(ids("prompt"), BlockHash::root(0, None, None), BLOCK),
                    output: Output::Given(ids("output")),
                    max_output: request["max_tokens"].as_u64().unwrap() as u32,
                    report_reused: false,
                },
                self.now,
            )
            .unwrap();
        id
    }

    fn step(&mut self, names: &mut Names) -> bool {
        let Some(outcome) = self.engine.step(self.now) else {
            return false;
        };
        self.now = outcome.ends();
        let StepOutcome { tokens, events, .. } = &outcome;
        for token in tokens {
            if let Some(finished) = token.finished {
                self.cached.insert(token.id, finished.cached_tokens);
                self.preemptions += finished.preemptions;
            }
        }
        let changes: Vec<Change> = events
            .iter()
            .map(|event| match event {
                Event::Stored {
                    parent,
                    hashes,
                    tokens,
                    ..
                } => Change::Stored {
                    parent: parent.map(|hash| names.of(hash.0)),
                    blocks: hashes.iter().map(|hash| names.of(hash.0)).collect(),
                    tokens: tokens.to_vec(),
                },
                Event::Removed { hash } => Change::Removed(names.of(hash.0)),
                Event::Cleared => Change::Cleared,
            })
            .collect();
        if !changes.is_empty() {
            self.batches.push(changes);
        }
        true
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn captured_batches() -> Vec<(String, Vec<Change>)> {
    let mut names = Names::default();
    let mut change = |event: &Value| match event["type"].as_str() {
        Some("BlockStored") => Change::Stored {
            parent: event["parent_block_hash"].as_u64().map(|hash| names.of(hash)),
            blocks: integers(&event["block_hashes"])
                .map(|hash| names.of(hash))
                .collect(),
            tokens: integers(&event["token_ids"]).map(|token| token as u32).collect(),
        },
        Some("BlockRemoved") => Change::Removed(names.of(event["block_hashes"][0].as_u64().unwrap())),
        Some("AllBlocksCleared") => Change::Cleared,
        other => panic!("unexpected event {other:?}"),
    };
    lines(include_str!("../testdata/evict-events.jsonl"))
        .iter()
        .map(|line| {
            let step = line["step"].as_str().unwrap().to_owned();
            (
                step,
                line["events"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(&mut change)
                    .collect(),
            )
        })
        .collect()
}

fn integers(list: &Value) -> impl Iterator<Item = u64> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_u64().unwrap())
}

#[test]
fn a_cache_of_27_blocks_changes_as_the_captured_one() {
    let requests = lines(include_str!("../testdata/evict-requests.jsonl"));
    let mut replay = Replay::new();
    let mut names = Names::default();
    let mut expected_cached = HashMap::new();
    let mut from = 0;
    while from < requests.len() {
        let step = requests[from]["step"].as_str().unwrap();
        let group: Vec<&Value> = requests[from..]
            .iter()
            .take_while(|line| line["step"] == step)
            .collect();
        from += group.len();
        if group[0]["reset"] == true {
            assert!(replay.engine.reset_prefix_cache(false));
            continue;
        }
        // Concurrent requests reached the captured engine one step apart; who came first and in which order
        // shows in the first tokens of their stores.
        let order: Vec<usize> = match step {
            "preemption" => {
                let by_token = |token: u64| group.iter().position(|line| line["prompt"][0] == token).unwrap();
                [891, 1022, 760, 1153].map(by_token).to_vec()
            }
            _ => (0..group.len()).collect(),
        };
        for (nth, &index) in order.iter().enumerate() {
            let id = replay.add(group[index]);
            expected_cached.insert(id, group[index]["cached"].as_u64().unwrap() as u32);
            if nth == 0 {
                assert!(replay.step(&mut names));
            }
        }
        while replay.step(&mut names) {}
    }

    let captured = captured_batches();
    for (nth, (step, changes)) in captured.iter().enumerate() {
        assert_eq!(
            replay.batches.get(nth),
            Some(changes),
            "message {nth}, step {step}"
        );
    }
    assert_eq!(replay.batches.len(), captured.len());
    assert_eq!(replay.cached, expected_cached);
    assert!(replay.preemptions >= 2, "{} preemptions", replay.preemptions);
}
