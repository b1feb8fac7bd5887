//! Whole runs on small traces.

use std::{path::Path, time::Duration};

use lmetric_scheduler::{HotspotAction, PolicyKind};

use super::{
    capacity::search as search_capacity,
    fleet::{FleetRequest, FleetSpec},
    measure::Measured,
    plan::{Bench, Planned},
    study::Share,
    world::Wiring,
};
use crate::{
    trace::{Trace, TraceRequest},
    units::Window,
};

const WIRING: Wiring = Wiring {
    event_delay: Duration::from_millis(5),
    scrape_delay: Duration::from_millis(50),
    bodies: false,
};

/// 40 conversations of 8 turns, one turn every `gap` seconds over all of them; each turn repeats the one before and adds 700 tokens.
fn conversations(gap: f64) -> Trace {
    let mut requests = Vec::new();
    for turn in 0..8_u32 {
        for talk in 0..40_u64 {
            let number = requests.len() as u32;
            let tokens = 1_100 + 700 * turn + (talk * 13 % 200) as u32;
            let blocks = tokens.div_ceil(512);
            let full = tokens / 512;
            let id = |block: u32| {
                let own = if block < full { 0 } else { u64::from(turn) + 1 };
                (talk + 1) * 100_000 + u64::from(block) * 100 + own
            };
            requests.push(TraceRequest {
                line: number + 1,
                at: f64::from(number) * gap,
                input_tokens: tokens,
                output_tokens: 20 + number * 7 % 60,
                blocks: (0..blocks).map(id).collect(),
            });
        }
    }
    read(requests)
}

fn read(requests: Vec<TraceRequest>) -> Trace {
    Trace {
        format: crate::trace::TraceFormat::Mooncake,
        block_size: 512,
        requests,
        hash: 0,
    }
}

fn fleet(engines: u32) -> FleetSpec {
    FleetSpec::new(&FleetRequest {
        engines,
        gpu: "H20",
        gpu_file: None,
        model: "qwen2-7b",
        model_file: None,
        utilization: 0.85,
        max_num_batched_tokens: 8_192,
        max_num_seqs: 256,
    })
    .unwrap()
}

fn bench<'a>(trace: &'a Trace, fleet: &'a FleetSpec) -> Bench<'a> {
    Bench {
        trace,
        fleet,
        window: Window::ALL,
        jitter: Duration::ZERO,
        longest: None,
        wiring: WIRING,
        overlay: true,
    }
}

fn planned(policy: &str) -> Planned {
    Planned {
        policy: policy.parse().unwrap(),
        sweep: None,
        share: Share::Whole,
        rate_scale: 1.0,
        fraction: None,
        seed: 7,
        hotspot: HotspotAction::Filter,
    }
}

fn run(bench: &Bench<'_>, planned: &Planned) -> Measured {
    bench.run(planned, |_| true).unwrap().unwrap()
}

fn bytes(measured: &Measured) -> String {
    serde_json::to_string(&measured.outcome(0.0)).unwrap()
        + &serde_json::to_string(&measured.records()).unwrap()
}

#[test]
fn every_policy_answers_everything_and_the_same_seed_gives_the_same_bytes() {
    let (trace, fleet) = (conversations(0.05), fleet(4));
    let bench = bench(&trace, &fleet);
    for policy in PolicyKind::all() {
        let planned = planned(policy.name());
        let one = run(&bench, &planned);
        assert_eq!(one.done(), trace.requests.len() as u64, "{policy}");
        assert_eq!(bytes(&one), bytes(&run(&bench, &planned)), "{policy}");
    }
    let other = Planned {
        seed: 8,
        ..planned("random")
    };
    assert_ne!(
        bytes(&run(&bench, &planned("random"))),
        bytes(&run(&bench, &other))
    );
}

#[test]
fn with_events_at_once_and_no_crowd_the_picker_predicts_every_hit() {
    let (trace, fleet) = (conversations(2.0), fleet(2));
    let wiring = Wiring {
        event_delay: Duration::ZERO,
        ..WIRING
    };
    let bench = Bench {
        wiring,
        ..bench(&trace, &fleet)
    };
    let figures = run(&bench, &planned("lmetric")).outcome(0.0).figures;
    assert_eq!(figures.hit_error, 0.0);
    assert!(figures.hit_ratio > 0.5, "{figures:?}");
}

#[test]
fn one_idle_engine_takes_the_step_times_of_the_model() {
    let requests = vec![TraceRequest {
        line: 1,
        at: 0.0,
        input_tokens: 2_048,
        output_tokens: 3,
        blocks: vec![1, 2, 3, 4],
    }];
    let (trace, fleet) = (read(requests), fleet(1));
    let outcome = run(&bench(&trace, &fleet), &planned("lmetric")).outcome(0.0);
    let time = lmetric_engine::StepTime::new(&lmetric_engine::Gpu::h20(), &lmetric_engine::Model::qwen2_7b());
    let prefill = lmetric_engine::StepWork {
        chunks: vec![lmetric_engine::Chunk {
            tokens: 2_048,
            before: 0,
        }],
        decodes: 0,
        decode_context: 0,
    };
    let decode = |context| lmetric_engine::StepWork {
        chunks: Vec::new(),
        decodes: 1,
        decode_context: context,
    };
    let ttft = time.seconds(&prefill) * 1e3;
    let tpot = (time.seconds(&decode(2_049)) + time.seconds(&decode(2_050))) * 1e3 / 2.0;
    assert!((outcome.figures.ttft_ms.mean - ttft).abs() < 0.002);
    assert!((outcome.figures.tpot_ms.mean - tpot).abs() < 0.002);
}

#[test]
fn without_alarms_the_detector_changes_nothing() {
    let (trace, fleet) = (conversations(0.05), fleet(4));
    let bench = bench(&trace, &fleet);
    let on = run(&bench, &planned("lmetric"));
    let off = Planned {
        hotspot: HotspotAction::Off,
        ..planned("lmetric")
    };
    assert_eq!(on.outcome(0.0).figures.alarms, 0);
    assert_eq!(bytes(&on), bytes(&run(&bench, &off)));
}

#[test]
fn a_canary_and_the_rest_are_all_requests_and_conversations_stay_together() {
    let (trace, fleet) = (conversations(0.05), fleet(6));
    let bench = bench(&trace, &fleet);
    let side = |share| {
        let planned = Planned {
            share,
            ..planned("lmetric")
        };
        let jobs = bench.workload(&planned).jobs;
        let sessions: std::collections::BTreeSet<u64> = jobs.iter().map(|job| job.session).collect();
        (jobs.len(), sessions)
    };
    let ((canary, ours), (rest, theirs)) = (side(Share::Canary), side(Share::Rest));
    assert_eq!(canary + rest, trace.requests.len());
    assert!((60..150).contains(&canary), "{canary}");
    assert!(ours.is_disjoint(&theirs));
}

#[test]
fn a_run_that_is_told_to_stop_stops() {
    let (trace, fleet) = (conversations(0.01), fleet(2));
    let stopped = bench(&trace, &fleet).run(&planned("lmetric"), |_| false).unwrap();
    assert!(stopped.is_none());
}

#[test]
fn a_locality_aware_policy_hits_more_than_chance() {
    let (trace, fleet) = (conversations(0.05), fleet(8));
    let bench = bench(&trace, &fleet);
    let hits = |policy: &str| run(&bench, &planned(policy)).outcome(0.0).figures.hit_ratio;
    let (ours, chance) = (hits("lmetric"), hits("random"));
    assert!(ours > chance + 0.2, "{ours} against {chance}");
}

#[test]
fn capacity_is_that_of_the_best_policy_and_those_before_it_are_named() {
    let (trace, fleet) = (conversations(0.2), fleet(4));
    let bench = bench(&trace, &fleet);
    let stop = tokio_util::sync::CancellationToken::new();
    let search = |policies: &[&str]| {
        let policies: Vec<PolicyKind> = policies.iter().map(|policy| policy.parse().unwrap()).collect();
        search_capacity(&bench, &policies, 7, Some(1), &stop)
            .unwrap()
            .unwrap()
    };
    let (ours, theirs) = (search(&["lmetric"]).0, search(&["random"]).0);
    assert!(ours > 0.0 && theirs > 0.0);
    for order in [["lmetric", "random"], ["random", "lmetric"]] {
        let (best, named) = search(&order);
        // each search stops within 5 % of its limit, and what is not 5 % better is not looked at
        assert!(
            best * 1.11 >= ours.max(theirs),
            "{best} against {ours} and {theirs}"
        );
        assert_eq!(named[0].0.name(), order[0]);
        assert!(named.is_sorted_by(|one, other| one.1 < other.1), "{named:?}");
        assert_eq!(named.last().unwrap().1, best);
    }
}

#[test]
fn a_value_of_a_sweep_that_is_the_policy_as_it_stands_is_the_same_run() {
    let plain = planned("bailian");
    let swept = Planned {
        sweep: Some(("lambda".to_owned(), "0.7".to_owned())),
        ..plain.clone()
    };
    assert!(plain.is_same_run(&swept));
    let other = Planned {
        rate_scale: 2.0,
        ..plain.clone()
    };
    assert!(!plain.is_same_run(&other));
    assert!(!plain.is_same_run(&planned("bailian(lambda=0.6)")));
}

#[test]
fn a_missing_trace_is_one_clear_error() {
    let error = Trace::open(Path::new("/nowhere.jsonl"), None, None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/nowhere.jsonl") && error.contains("--trace"),
        "{error}"
    );
}
