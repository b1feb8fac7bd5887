//! A shadow policy beside the live one: it sees every pick and changes nothing.

use lmetric_scheduler::{
    HotspotAction, PickRequest, PolicyKind, SchedulerConfig, ShadowConfig, ShadowView, Side,
};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::bench::{Bench, ask, at, text};

fn config(live: PolicyKind, shadow: Option<PolicyKind>) -> SchedulerConfig {
    SchedulerConfig {
        policy: live,
        shadow: shadow.map(|policy| ShadowConfig { policy, engine: None }),
        ..SchedulerConfig::default()
    }
}

/// Two minutes of requests, half of them of one class: everything that can be seen of the live side.
fn live_side(config: SchedulerConfig, seed: u64) -> String {
    let mut bench = Bench::new(4, 16, config);
    let mut rng = SmallRng::seed_from_u64(seed);
    let prefix = text(1, 1_024);
    let mut open = Vec::new();
    let mut now = 0.0;
    let mut picks = Vec::new();
    for number in 0..300_u32 {
        now += 0.4;
        let tokens = if rng.random_range(0..2) == 0 {
            [prefix.clone(), text(1_000 + number, 40)].concat()
        } else {
            text(2_000 + number % 40, rng.random_range(10..900))
        };
        let prompt = bench.prompt(&tokens);
        let prompts = std::slice::from_ref(&prompt);
        let request = PickRequest {
            session: Some(u64::from(number % 7)),
            weight: 1 + number % 3 / 2,
            ..ask(prompts)
        };
        let pick = bench.try_pick(&request, at(now)).unwrap();
        picks.push(pick.clone());
        let endpoint = bench.ids.iter().position(|id| *id == pick.endpoint).unwrap();
        if rng.random_range(0..3) > 0 {
            let blocks = prompt.chains[0].1.keys.len();
            bench.store(endpoint, &prompt, 0, blocks, at(now));
        }
        open.push(pick.reservation);
        if open.len() > 12 {
            let ended = open.swap_remove(rng.random_range(0..open.len()));
            bench.end(ended, at(now));
        }
    }
    let decisions = serde_json::to_string(&bench.scheduler.decisions(1_000)).unwrap();
    format!("{picks:?}{decisions}{:?}", bench.scheduler.counters())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_live_picks_are_the_same_with_and_without_it(
        live in 0..16_usize, shadow in 0..16_usize, seed: u64, action in 0..3_usize,
    ) {
        let [live, shadow] = [live, shadow].map(|at| PolicyKind::all()[at]);
        let hotspot = [HotspotAction::Off, HotspotAction::Filter, HotspotAction::LoadOnly][action];
        let with = SchedulerConfig { hotspot, ..config(live, Some(shadow)) };
        let without = SchedulerConfig { hotspot, ..config(live, None) };
        prop_assert_eq!(live_side(with, seed), live_side(without, seed));
    }
}

#[test]
fn it_agrees_always_with_its_like_where_nothing_is_drawn() {
    let mut bench = Bench::new(
        3,
        16,
        config(PolicyKind::RoundRobin, Some(PolicyKind::RoundRobin)),
    );
    for number in 0..9 {
        let prompt = bench.prompt(&text(number, 100));
        bench.pick(&prompt, at(f64::from(number)));
    }
    let view = bench.scheduler.shadow().unwrap();
    assert_eq!((view.picks, view.agreed), (9, 9));
    assert_eq!(view.live, view.shadow);
}

#[test]
fn both_sides_are_counted_by_hand() {
    let mut bench = Bench::new(2, 16, config(PolicyKind::RoundRobin, Some(PolicyKind::LMETRIC)));
    let prompt = bench.prompt(&text(1, 160));
    bench.index_only(1, &prompt, 0, 10);
    // in turn it goes to the first, which holds nothing; LMetric would go to the second, which must compute one block
    bench.pick(&prompt, at(0.0));
    // now both choose the second
    bench.pick(&prompt, at(0.0));
    let ShadowView {
        live_policy,
        shadow_policy,
        picks,
        agreed,
        prompt_tokens,
        live,
        shadow,
        live_spread,
        shadow_spread,
        endpoints,
    } = bench.scheduler.shadow().unwrap();
    assert_eq!(
        (live_policy.as_str(), shadow_policy.as_str()),
        ("round-robin", "lmetric")
    );
    assert_eq!((picks, agreed, prompt_tokens), (2, 1, 320));
    let side = |picks, prefill_tokens| Side {
        picks,
        prefill_tokens,
    };
    assert_eq!((live, shadow), (side(2, 176), side(2, 32)));
    assert_eq!((live_spread, shadow_spread), (0.0, 1.0));
    let sides: Vec<(Side, Side)> = endpoints.iter().map(|one| (one.live, one.shadow)).collect();
    assert_eq!(sides, [(side(1, 160), side(0, 0)), (side(1, 16), side(2, 32))]);
}

#[test]
fn a_policy_with_a_memory_keeps_its_own() {
    let live = PolicyKind::SessionAffinity;
    let mut bench = Bench::new(3, 16, config(live, Some(PolicyKind::RoundRobin)));
    for number in 0..9 {
        let prompt = bench.prompt(&text(number, 100));
        let request = PickRequest {
            session: Some(5),
            ..ask(std::slice::from_ref(&prompt))
        };
        bench.try_pick(&request, at(f64::from(number))).unwrap();
    }
    let view = bench.scheduler.shadow().unwrap();
    let by = |side: fn(&lmetric_scheduler::ShadowEndpoint) -> u64| {
        let mut picks: Vec<u64> = view.endpoints.iter().map(side).collect();
        picks.sort_unstable();
        picks
    };
    assert_eq!(by(|endpoint| endpoint.shadow.picks), [3, 3, 3]);
    assert_eq!(by(|endpoint| endpoint.live.picks), [0, 0, 9]);
}

#[test]
fn another_configuration_begins_anew_and_a_new_endpoint_has_no_past() {
    let pair = config(PolicyKind::LMETRIC, Some(PolicyKind::Vllm));
    let mut bench = Bench::new(2, 16, pair.clone());
    let prompt = bench.prompt(&text(1, 100));
    for _ in 0..4 {
        bench.pick(&prompt, at(0.0));
    }
    bench.scheduler.reconfigure(pair);
    assert_eq!(bench.scheduler.shadow().unwrap().picks, 4, "nothing changed");
    let gone = bench.ids[0];
    bench.scheduler.remove(gone, at(1.0));
    bench.scheduler.free_slot(gone.slot);
    let new = bench.add(7);
    assert_eq!(new.slot, gone.slot);
    let view = bench.scheduler.shadow().unwrap();
    let fresh = view
        .endpoints
        .iter()
        .find(|one| one.address.ip().to_string() == "10.0.0.8");
    assert_eq!(fresh.unwrap().live.picks, 0);
    assert_eq!(view.picks, 4);

    bench
        .scheduler
        .reconfigure(config(PolicyKind::LMETRIC, Some(PolicyKind::Random)));
    let view = bench.scheduler.shadow().unwrap();
    assert_eq!((view.picks, view.shadow_policy.as_str()), (0, "random"));
    bench.scheduler.reconfigure(config(PolicyKind::LMETRIC, None));
    assert_eq!(bench.scheduler.shadow(), None);
}
