//! Who may be picked, in which order that is decided, and what is said when nobody may.

use std::collections::HashSet;

use lmetric_prefix::BlockSize;
use lmetric_scheduler::{NoEndpoint, Outcome, PickRequest, PolicyKind, SchedulerConfig, SpaceSpec, Subset};

use crate::bench::{Bench, GROUP, ask, at, keys, text};

#[test]
fn nobody_ready() {
    let mut bench = Bench::plain(2, 16);
    for id in bench.ids.clone() {
        bench.scheduler.set_ready(id, false);
    }
    assert_eq!(bench.try_pick(&ask(&[]), at(0.0)), Err(NoEndpoint::NoneReady));
    assert_eq!(bench.scheduler.counters().refused, 1);
    assert_eq!(bench.scheduler.open(), 0);
}

#[test]
fn a_subset_names_addresses_or_every_port_of_an_ip() {
    let mut bench = Bench::plain(3, 16);
    let second = bench.views(at(0.0))[1].address;
    for entry in [(second.ip(), None), (second.ip(), Some(second.port()))] {
        let subset = Subset(vec![entry]);
        let request = PickRequest {
            subset: Some(&subset),
            ..ask(&[])
        };
        assert_eq!(bench.try_pick(&request, at(0.0)).unwrap().address, second);
    }
    for subset in [Subset(vec![]), Subset(vec![(second.ip(), Some(1))])] {
        let request = PickRequest {
            subset: Some(&subset),
            ..ask(&[])
        };
        assert_eq!(
            bench.try_pick(&request, at(0.0)),
            Err(NoEndpoint::SubsetEmpty { ready: 3 })
        );
    }
}

#[test]
fn only_endpoints_that_can_serve_the_adapter() {
    let mut bench = Bench::plain(2, 16);
    bench
        .scheduler
        .set_adapters(bench.ids[0], Some(vec!["sql".into()]));
    bench.scheduler.set_adapters(bench.ids[1], Some(vec![]));
    let request = PickRequest {
        lora: Some("sql"),
        ..ask(&[])
    };
    for _ in 0..8 {
        assert_eq!(bench.try_pick(&request, at(0.0)).unwrap().endpoint, bench.ids[0]);
    }
    let request = PickRequest {
        lora: Some("poems"),
        ..ask(&[])
    };
    let refused = NoEndpoint::AdapterUnknown {
        adapter: "poems".into(),
    };
    assert_eq!(bench.try_pick(&request, at(0.0)), Err(refused));
    bench.scheduler.set_adapters(bench.ids[1], None);
    assert_eq!(bench.try_pick(&request, at(0.0)).unwrap().endpoint, bench.ids[1]);
}

#[test]
fn an_ejected_endpoint_is_no_candidate_unless_all_are() {
    let mut bench = Bench::plain(2, 16);
    let prompt = bench.prompt(&text(1, 64));
    for _ in 0..3 {
        let pick = bench.pick_on(0, &prompt, at(0.0));
        bench
            .scheduler
            .release(pick.reservation, Outcome::ServerError, at(0.0));
    }
    for _ in 0..8 {
        assert_eq!(bench.pick(&prompt, at(0.1)).endpoint, bench.ids[1]);
    }
    assert_eq!(
        bench.pick_on(0, &prompt, at(0.1)).endpoint,
        bench.ids[0],
        "the only one allowed"
    );
    assert_eq!(bench.scheduler.counters().ejections, 1);
}

#[test]
fn a_client_that_leaves_and_a_4xx_are_no_failures() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 64));
    for _ in 0..10 {
        let pick = bench.pick(&prompt, at(0.0));
        bench
            .scheduler
            .release(pick.reservation, Outcome::ClientAbort, at(0.0));
        let pick = bench.pick(&prompt, at(0.0));
        bench.scheduler.status(pick.reservation, 404, at(0.0));
        bench.scheduler.release(pick.reservation, Outcome::Done, at(0.0));
    }
    assert_eq!(bench.scheduler.counters().ejections, 0);
}

#[test]
fn a_status_counts_once() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 64));
    for _ in 0..2 {
        let pick = bench.pick(&prompt, at(0.0));
        bench.scheduler.status(pick.reservation, 503, at(0.0));
        bench
            .scheduler
            .release(pick.reservation, Outcome::ServerError, at(0.0));
    }
    assert_eq!(bench.scheduler.counters().ejections, 0, "two failures, not four");
}

#[test]
fn lmetric_prefers_the_holder_until_the_crowd_outweighs_the_hit() {
    let mut bench = Bench::plain(2, 16);
    let prompt = bench.prompt(&text(1, 1_000));
    bench.index_only(0, &prompt, 0, 60); // 960 of 1,000
    let filler = bench.prompt(&text(9, 8));
    for load in 0..40 {
        let pick = bench.pick(&prompt, at(0.0));
        let decision = &bench.scheduler.decisions(1)[0];
        let best = decision.candidates[0].1.score;
        let other = decision.candidates[1].1.score;
        // hand-computed: Q of `load` decoding requests is 0, so 40 × (load + 1) against 1000 × 1
        let expected = f64::from(40 * (load + 1));
        assert_eq!(expected.min(1_000.0), best);
        assert_eq!(expected.max(1_000.0), other);
        if load < 24 {
            assert_eq!(pick.endpoint, bench.ids[0], "{load}");
        } else if load > 24 {
            assert_eq!(pick.endpoint, bench.ids[1], "{load}");
        }
        bench.end(pick.reservation, at(0.0));
        let decoding = bench.pick_on(0, &filler, at(0.0));
        bench.scheduler.first_output(decoding.reservation, at(0.0));
    }
}

#[test]
fn vllm_waits_four_times_as_long_for_the_waiting() {
    let config = SchedulerConfig {
        policy: PolicyKind::Vllm,
        ..SchedulerConfig::default()
    };
    let mut bench = Bench::new(2, 16, config);
    let prompt = bench.prompt(&text(1, 320));
    for _ in 0..3 {
        let decoding = bench.pick_on(0, &prompt, at(0.0));
        bench.scheduler.first_output(decoding.reservation, at(0.0));
    }
    let waiting = bench.pick_on(1, &prompt, at(0.0));
    assert_eq!(bench.pick(&prompt, at(0.0)).endpoint, bench.ids[0], "3 against 4");
    bench.store(1, &prompt, 0, 1, at(0.1));
    assert_eq!(
        bench.pick(&prompt, at(0.1)).endpoint,
        bench.ids[1],
        "its first own event: 1 against 7"
    );
    bench.end(waiting.reservation, at(0.2));
}

#[test]
fn policies_change_at_run_time_and_the_ledger_stays() {
    let mut bench = Bench::plain(4, 16);
    let prompt = bench.prompt(&text(1, 64));
    let pick = bench.pick(&prompt, at(0.0));
    let config = SchedulerConfig {
        policy: PolicyKind::RoundRobin,
        ..SchedulerConfig::default()
    };
    bench.scheduler.reconfigure(config);
    let slots: HashSet<_> = (0..4)
        .map(|_| bench.pick(&prompt, at(0.0)).endpoint.slot)
        .collect();
    assert_eq!(slots.len(), 4);
    assert_eq!(bench.scheduler.open(), 5);
    assert!(bench.end(pick.reservation, at(0.0)));
}

#[test]
fn stale_ids_are_harmless() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 320));
    let pick = bench.pick(&prompt, at(0.0));
    let stale = bench.ids[0];
    bench.scheduler.remove(stale, at(0.1));
    assert_eq!(bench.scheduler.open(), 0);
    bench.index.write().clear(stale.slot);
    bench.scheduler.free_slot(stale.slot);
    let fresh = bench.add(9);
    assert_eq!(fresh.slot, stale.slot);
    bench.ids[0] = fresh;
    let second = bench.pick(&prompt, at(0.2));

    bench.scheduler.set_ready(stale, false);
    bench.scheduler.set_source_live(stale, false, at(0.2));
    bench.scheduler.restarted(stale, at(0.2));
    bench.scheduler.remove(stale, at(0.2));
    bench.scheduler.scrape_failed(stale, true, at(0.2));
    assert!(!bench.end(pick.reservation, at(0.2)), "closed with its endpoint");
    bench.scheduler.first_output(pick.reservation, at(0.2));
    bench
        .scheduler
        .served_by(pick.reservation, second.address, at(0.2));
    let view = &bench.views(at(0.2))[0];
    assert_eq!((view.q, view.bs, view.ready), (320, 1, true));
    assert!(bench.end(second.reservation, at(0.3)));
}

#[test]
fn a_restart_closes_what_was_open_and_keeps_the_endpoint() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 320));
    let pick = bench.pick(&prompt, at(0.0));
    bench.scheduler.restarted(bench.ids[0], at(0.1));
    let view = &bench.views(at(0.1))[0];
    assert_eq!(
        (view.q, view.bs, view.optimistic_blocks, view.ready),
        (0, 0, 0, true)
    );
    assert!(!bench.end(pick.reservation, at(0.1)));
    assert_eq!(bench.pick(&prompt, at(0.2)).endpoint, bench.ids[0]);
}

#[test]
fn an_endpoint_whose_block_size_is_unknown_counts_by_load_until_it_is() {
    let mut bench = Bench::plain(1, 16);
    let spec = lmetric_scheduler::EndpointSpec {
        address: "10.9.9.9:8000".parse().unwrap(),
        rank: Some(3),
        group: GROUP.into(),
        block_size: None,
    };
    let id = bench.scheduler.add(spec).unwrap();
    bench.scheduler.set_ready(id, true);
    bench.scheduler.set_source_live(id, true, at(0.0));
    bench.ids.push(id);
    assert_eq!(bench.scheduler.spaces().len(), 1);
    let prompt = bench.prompt(&text(1, 320));
    bench.index_only(1, &prompt, 0, 20);
    let pick = bench.pick_on(1, &prompt, at(0.0));
    assert_eq!((pick.hit_tokens, pick.rank), (0, Some(3)));
    bench.scheduler.set_block_size(id, BlockSize::new(16).unwrap());
    let pick = bench.pick_on(1, &prompt, at(0.0));
    assert_eq!(pick.hit_tokens, 304);
    assert_eq!(keys(&prompt).len(), 20);
}

#[test]
fn at_most_four_key_spaces_are_asked_for_those_of_most_endpoints() {
    let bench = Bench::plain(3, 16);
    for (number, block) in [(10, 32), (11, 64), (12, 128), (13, 32), (14, 8)] {
        let spec = lmetric_scheduler::EndpointSpec {
            address: crate::bench::address(number).parse().unwrap(),
            rank: None,
            group: GROUP.into(),
            block_size: BlockSize::new(block),
        };
        bench.scheduler.add(spec).unwrap();
    }
    let spaces = bench.scheduler.spaces();
    let sizes: Vec<u32> = spaces
        .iter()
        .map(|SpaceSpec { block_size, .. }| block_size.get())
        .collect();
    assert_eq!(sizes, [16, 32, 64, 128]);
}

#[test]
fn the_decision_says_who_won_and_why() {
    let mut bench = Bench::plain(3, 16);
    let prompt = bench.prompt(&text(1, 320));
    bench.index_only(2, &prompt, 0, 10);
    let prompts = std::slice::from_ref(&prompt);
    let request = PickRequest {
        request_id: "abc",
        ..ask(prompts)
    };
    let pick = bench.try_pick(&request, at(3.0)).unwrap();
    let decision = &bench.scheduler.decisions(5)[0];
    assert_eq!(decision.request_id, "abc");
    assert_eq!(decision.at, 3_000_000_000);
    assert_eq!(decision.winner, pick.address.to_string());
    assert_eq!(
        (decision.tokens, decision.ties, decision.candidate_count),
        (320, 1, 3)
    );
    assert_eq!(decision.candidates[0].0, decision.winner);
    assert_eq!(decision.candidates[0].1.hit, 160);
    assert_eq!(decision.candidates[0].1.score, 160.0);
    assert!(
        serde_json::to_string(decision)
            .unwrap()
            .contains("\"policy\":\"lmetric\"")
    );
}
