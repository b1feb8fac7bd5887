//! The picker predicts what the simulator predicts: the same requests and events in the same order, here as token ids and vLLM's own
//! messages, there as ids of a trace and hashes.

use std::{cmp::Reverse, collections::BinaryHeap, collections::VecDeque, sync::Arc, time::Duration};

use lmetric_cli::{
    replay::{PromptKind, PromptMaker},
    simulate::{Bench, FleetRequest, FleetSpec, Measured, Planned, Share, Wiring},
    trace::{Trace, TraceFormat, TraceRequest},
    units::Window,
};
use lmetric_engine::{BlockHash, Engine as Model, Output, Prompt, Request, RequestId, StepOutcome};
use lmetric_epp::{
    guard::{Place, Placement},
    request::ParsedRequest,
};
use lmetric_kvevents::{Outcome as Applied, Source, SourceConfig};
use lmetric_scheduler::{HotspotAction, Outcome, PolicyKind, Subset};
use vllm_sim::{
    args::EventFormat,
    wire::{Encoder, Extra},
};

use crate::{
    engine::{Behaviour, Engine},
    stage::{Stage, completion, endpoint, events},
};

const BLOCK: u32 = 16;
const ENGINES: usize = 3;
const EVENT_DELAY: Duration = Duration::from_millis(5);

/// Twelve conversations of ten turns behind one system prompt; some turns repeat their predecessor.
fn conversations() -> Trace {
    let mut requests = Vec::new();
    for turn in 0..10_u32 {
        for talk in 0..12_u32 {
            let number = turn * 12 + talk;
            let grown = if talk % 5 == 0 { turn / 2 * 2 } else { turn };
            let tokens = 300 + talk * 37 + grown * 210;
            let id = |block: u32| match block {
                0..12 => u64::from(block) + 1,
                // the last, partial block is the turn's own
                _ if block == tokens / BLOCK => {
                    u64::from(talk + 1) << 32 | u64::from(block) << 8 | u64::from(grown + 1)
                }
                _ => u64::from(talk + 1) << 32 | u64::from(block) << 8,
            };
            requests.push(TraceRequest {
                line: number + 1,
                at: f64::from(number) * 0.06,
                input_tokens: tokens,
                output_tokens: 10 + number * 7 % 50,
                blocks: (0..tokens.div_ceil(BLOCK)).map(id).collect(),
            });
        }
    }
    Trace {
        format: TraceFormat::Mooncake,
        block_size: BLOCK,
        requests,
        recorded: None,
        hash: 0,
    }
}

/// Engines whose cache is too small for all conversations.
fn fleet() -> FleetSpec {
    let mut fleet = FleetSpec::new(&FleetRequest {
        engines: ENGINES as u32,
        gpu: "H20",
        gpu_file: None,
        model: "qwen2-7b",
        model_file: None,
        utilization: 0.85,
        max_num_batched_tokens: 1_024,
        max_num_seqs: 64,
    })
    .expect("a fleet");
    fleet.parts[0].engine.num_gpu_blocks = 500;
    fleet
}

fn simulated(trace: &Trace, fleet: &FleetSpec) -> Measured {
    let bench = Bench {
        trace,
        fleet,
        window: Window::ALL,
        jitter: Duration::ZERO,
        longest: None,
        wiring: Wiring {
            event_delay: EVENT_DELAY,
            scrape_delay: Duration::from_millis(50),
            bodies: false,
        },
        overlay: true,
    };
    let planned = Planned {
        policy: PolicyKind::LMETRIC,
        sweep: None,
        share: Share::Whole,
        rate_scale: 1.0,
        fraction: None,
        seed: 7,
        hotspot: HotspotAction::Off,
    };
    bench
        .run(&planned, |_| true)
        .expect("it runs")
        .expect("to its end")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    StepEnds(usize),
    EventsArrive(usize),
}

/// An engine of the model, with the source that reads its messages.
struct Machine {
    model: Model,
    stepping: bool,
    outcome: StepOutcome,
    batches: VecDeque<bytes::Bytes>,
    source: Source,
    generation: lmetric_kvevents::Generation,
    seq: u64,
}

/// The picker in front of engines of the model.
struct World {
    stage: Stage,
    engines: Vec<Engine>,
    machines: Vec<Machine>,
    queue: BinaryHeap<Reverse<(u64, u64, What)>>,
    inserted: u64,
    open: Vec<Option<Placement>>,
}

impl World {
    async fn new(fleet: &FleetSpec, requests: usize) -> Self {
        let mut engines = Vec::new();
        for _ in 0..ENGINES {
            engines.push(Engine::start(Behaviour::default()).await);
        }
        let mut stage = Stage::new();
        let endpoints: Vec<_> = engines.iter().map(|engine| endpoint(engine.address)).collect();
        stage.reconciler.apply(&endpoints);
        stage.ready(ENGINES).await;
        let machine = |config: &lmetric_engine::EngineConfig| {
            let mut source = Source::new(SourceConfig {
                group: "m".into(),
                seed: stage.seed,
                rank: None,
                replay: false,
                gpu_blocks: config.num_gpu_blocks,
            });
            let generation = source.connected(&mut Applied::default());
            Machine {
                model: Model::new(config.clone()).expect("an engine"),
                stepping: false,
                outcome: StepOutcome::default(),
                batches: VecDeque::new(),
                source,
                generation,
                seq: 0,
            }
        };
        let machines = fleet.each().map(machine).collect();
        Self {
            stage,
            engines,
            machines,
            queue: BinaryHeap::new(),
            inserted: 0,
            open: (0..requests).map(|_| None).collect(),
        }
    }

    fn push(&mut self, at: u64, what: What) {
        self.inserted += 1;
        self.queue.push(Reverse((at, self.inserted, what)));
    }

    /// Everything that happens before `at`, and at it.
    fn until(&mut self, at: u64) {
        while let Some(Reverse((next, _, what))) = self.queue.peek().copied()
            && next <= at
        {
            self.queue.pop();
            match what {
                What::StepEnds(number) => self.step_ends(number, next),
                What::EventsArrive(number) => self.events_arrive(number),
            }
        }
    }

    /// Places the request on the engine that the simulator chose; the predicted hit.
    async fn arrive(
        &mut self,
        number: usize,
        request: &TraceRequest,
        tokens: Vec<u32>,
        on: usize,
        at: u64,
    ) -> u64 {
        let address = self.engines[on].address;
        let asked = ParsedRequest {
            subset: Some(Subset(vec![(address.ip(), Some(address.port()))])),
            ..completion(&number.to_string(), tokens.clone())
        };
        let placement = self.stage.picker.place(asked.into()).await.expect("placed");
        let hit = placement.pick().hit_tokens;
        self.open[number] = Some(placement);
        let root = BlockHash::root(0, None, None);
        let added = self.machines[on].model.add(
            Request {
                id: RequestId(number as u64),
                prompt: Prompt::tokens(tokens.into(), root, BLOCK),
                output: Output::Drawn {
                    seed: u64::from(request.line),
                    vocabulary: Arc::default(),
                },
                max_output: request.output_tokens,
                report_reused: false,
            },
            Duration::from_nanos(at),
        );
        added.expect("it fits");
        self.begin_step(on, at);
        hit
    }

    fn begin_step(&mut self, number: usize, at: u64) {
        let machine = &mut self.machines[number];
        if !machine.stepping
            && machine
                .model
                .step_into(Duration::from_nanos(at), &mut machine.outcome)
        {
            machine.stepping = true;
            let ends = machine.outcome.ends().as_nanos() as u64;
            self.push(ends, What::StepEnds(number));
        }
    }

    fn step_ends(&mut self, number: usize, at: u64) {
        let machine = &mut self.machines[number];
        machine.stepping = false;
        let encoder = Encoder {
            format: EventFormat::Map,
            bytes_hashes: false,
            block_size: BLOCK,
        };
        let batch = encoder.batch(0.0, &machine.outcome.events, 0, |_| Extra::default());
        if let Some(batch) = batch {
            machine.batches.push_back(batch);
            self.push(at + EVENT_DELAY.as_nanos() as u64, What::EventsArrive(number));
        }
        let outcome = std::mem::take(&mut self.machines[number].outcome);
        for token in &outcome.tokens {
            if token.finished.is_some()
                && let Some(mut placement) = self.open[token.id.0 as usize].take()
            {
                placement.finish(Outcome::Done);
            }
        }
        self.machines[number].outcome = outcome;
        self.begin_step(number, at);
    }

    fn events_arrive(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        let Some(batch) = machine.batches.pop_front() else {
            return;
        };
        let mut applied = Applied::default();
        machine.source.live(
            machine.generation,
            machine.seq,
            &batch,
            &mut |_| None,
            &mut applied,
        );
        machine.seq += 1;
        let name = events(self.engines[number].address);
        self.stage.recorder.apply(&name, &applied.ops);
    }
}

#[tokio::test]
async fn the_picker_predicts_the_hits_that_the_simulator_predicts() {
    let (trace, fleet) = (conversations(), fleet());
    let measured = simulated(&trace, &fleet);
    let expected: Vec<u64> = measured.predicted_hits().collect();
    let evicted = measured.outcome(0.0).figures;
    assert!(evicted.hit_ratio > 0.2, "the test hits something: {evicted:?}");

    let maker = PromptMaker::new(PromptKind::Tokens, "m".to_owned(), "", BLOCK, 2_000, true);
    let mut world = World::new(&fleet, trace.requests.len()).await;
    let mut predicted = Vec::new();
    for (number, (request, on)) in trace.requests.iter().zip(measured.placements()).enumerate() {
        let at = (Duration::from_secs_f64(request.at)).as_nanos() as u64;
        world.until(at);
        let tokens = maker.tokens(request).collect();
        predicted.push(world.arrive(number, request, tokens, usize::from(on), at).await);
    }
    world.until(u64::MAX);
    assert_eq!(world.stage.scheduler.open(), 0);
    let kinds = [
        expected.iter().filter(|hit| **hit == 0).count(),
        expected.iter().filter(|hit| **hit > 192).count(),
    ];
    assert!(
        kinds.iter().all(|count| *count > 0),
        "misses and long hits: {kinds:?}"
    );
    assert_eq!(predicted, expected);
}
