//! Hand-computed choices of every policy.

use rand::{SeedableRng, rngs::SmallRng};

use lmetric_policy::{EngineModel, PrefillChunk, StepModel};

use super::*;

fn candidate(slot: u16, hit: u64, queued: u64, batch: u64, waiting: u64) -> Candidate {
    Candidate {
        slot: SourceId(slot),
        identity: u64::from(slot) * 7_919 + 1,
        hit,
        queued,
        batch,
        waiting,
        prefilling: waiting,
        resident: 0,
        pairs: 0,
        kv_tokens: None,
        kv_use: None,
        backlog: (0, 0),
    }
}

fn config(kind: PolicyKind) -> SchedulerConfig {
    SchedulerConfig {
        policy: kind,
        ..SchedulerConfig::default()
    }
}

fn named(text: &str) -> PolicyKind {
    text.parse().unwrap()
}

fn scores(kind: PolicyKind, asked: Asked<'_>, candidates: &[Candidate]) -> Vec<f64> {
    scores_with(&config(kind), asked, candidates, &[])
}

fn scores_with(
    config: &SchedulerConfig,
    asked: Asked<'_>,
    candidates: &[Candidate],
    backlog: &[Queued],
) -> Vec<f64> {
    let mut scores = Vec::new();
    let mut rng = SmallRng::seed_from_u64(1);
    let view = View {
        asked: &asked,
        candidates,
        backlog,
    };
    build(config).score(&view, &mut scores, &mut rng);
    scores
}

/// Position of the only winner.
fn winner(scores: &[f64]) -> usize {
    let (at, ties) = draw(scores, |_| true, &mut SmallRng::seed_from_u64(3)).unwrap();
    assert_eq!(ties, 1, "{scores:?}");
    at
}

fn ask(weight: u32, tokens: u64) -> Asked<'static> {
    Asked {
        weight,
        tokens,
        keys: &[],
        block_tokens: 16,
        session: None,
        seconds: 0.0,
    }
}

#[test]
fn lmetric_multiplies_the_prefill_to_come_by_the_crowd() {
    let candidates = [
        candidate(0, 0, 0, 0, 0),       // 1000 × 1
        candidate(1, 960, 0, 24, 0),    // 40 × 25: as good as the idle one
        candidate(2, 960, 10, 18, 3),   // (10 + 40) × 19
        candidate(3, 1_000, 500, 1, 0), // nothing new still counts as one token
    ];
    assert_eq!(
        scores(PolicyKind::LMETRIC, ask(1, 1_000), &candidates),
        [1_000.0, 1_000.0, 950.0, 1_002.0]
    );
    // four engine requests: (0 + 1000) × (0 + 4); a full hit costs at least four tokens
    assert_eq!(
        scores(PolicyKind::LMETRIC, ask(4, 1_000), &candidates)[0],
        4_000.0
    );
    assert_eq!(
        scores(PolicyKind::LMETRIC, ask(4, 1_000), &candidates)[3],
        504.0 * 5.0
    );
}

#[test]
fn vllm_counts_a_waiting_request_four_times() {
    let candidates = [
        candidate(0, 999, 0, 10, 0), // 4·0 + 10
        candidate(1, 0, 900, 6, 2),  // 4·2 + 4
        candidate(2, 0, 0, 5, 1),    // 4·1 + 4
    ];
    assert_eq!(
        scores(PolicyKind::Vllm, ask(1, 1_000), &candidates),
        [10.0, 12.0, 8.0]
    );
}

#[test]
fn least_request_looks_at_bs_alone() {
    let candidates = [candidate(0, 999, 0, 3, 0), candidate(1, 0, 9_000, 2, 2)];
    assert_eq!(
        scores(PolicyKind::LeastRequest, ask(1, 1_000), &candidates),
        [3.0, 2.0]
    );
}

#[test]
fn round_robin_takes_every_slot_in_turn_even_when_some_come_and_go() {
    let mut policy = build(&config(PolicyKind::RoundRobin));
    let mut rng = SmallRng::seed_from_u64(1);
    let mut turn = |slots: &[u16]| {
        let candidates: Vec<Candidate> = slots.iter().map(|slot| candidate(*slot, 0, 0, 0, 0)).collect();
        let mut scores = Vec::new();
        let asked = ask(1, 1);
        let view = View {
            asked: &asked,
            candidates: &candidates,
            backlog: &[],
        };
        policy.score(&view, &mut scores, &mut rng);
        let (at, ties) = draw(&scores, |_| true, &mut rng).unwrap();
        assert_eq!(ties, 1);
        policy.chosen(&view, at);
        slots[at]
    };
    assert_eq!([turn(&[0, 3, 7]), turn(&[0, 3, 7]), turn(&[0, 3, 7])], [0, 3, 7]);
    assert_eq!(turn(&[0, 3, 7]), 0);
    assert_eq!(turn(&[0, 5, 7]), 5);
    assert_eq!(turn(&[0, 3]), 0);
}

#[test]
fn random_and_ties_are_uniform_and_the_filter_holds() {
    let candidates: Vec<Candidate> = (0..8).map(|slot| candidate(slot, 0, 0, 0, 0)).collect();
    let scores = scores(PolicyKind::Random, ask(1, 1), &candidates);
    let mut rng = SmallRng::seed_from_u64(7);
    let mut count = [0_u32; 8];
    for _ in 0..8_000 {
        let (at, ties) = draw(&scores, |at| at != 2, &mut rng).unwrap();
        assert_eq!(ties, 7);
        count[at] += 1;
    }
    assert_eq!(count[2], 0);
    let others = count.iter().enumerate().filter(|(at, _)| *at != 2);
    // 8000 / 7 ≈ 1143, standard deviation 31
    assert!(
        others.map(|(_, n)| *n).all(|n| (1_000..1_290).contains(&n)),
        "{count:?}"
    );
    assert_eq!(draw(&scores, |_| false, &mut rng), None);
}

#[test]
fn ablations_of_lmetric_replace_one_factor() {
    let mut candidates = [candidate(0, 0, 2_000, 3, 1), candidate(1, 800, 0, 9, 0)];
    candidates[0].resident = 5_000;
    candidates[1].resident = 30_000;
    let by = |text: &str| scores(named(text), ask(1, 1_000), &candidates);
    assert_eq!(by("lmetric"), [3_000.0 * 4.0, 200.0 * 10.0]);
    assert_eq!(by("lmetric(queue=false)"), [1_000.0 * 4.0, 200.0 * 10.0]);
    assert_eq!(by("lmetric(work=miss-ratio)"), [1.0 * 4.0, 0.2 * 10.0]);
    assert_eq!(by("lmetric(crowd=tokens)"), [3_000.0 * 6_000.0, 200.0 * 31_000.0]);
    // three in the batch, one of them still in prefill
    assert_eq!(by("lmetric(crowd=decode)"), [3_000.0 * 3.0, 200.0 * 10.0]);
}

#[test]
fn marginal_charges_the_queue_once_and_the_new_work_by_the_crowd() {
    let mut candidates = [candidate(0, 0, 9_000, 3, 1), candidate(1, 600, 0, 8, 0)];
    let by = |text: &str, candidates: &[Candidate]| scores(named(text), ask(1, 1_000), candidates);
    assert_eq!(
        by("lmetric-marginal(alpha=1)", &candidates),
        [9_000.0 + 1_000.0 * 4.0, 400.0 * 9.0]
    );
    // one of two has more than 8,192 tokens queued: α = 3/4
    assert_eq!(
        by("lmetric-marginal", &candidates),
        [9_000.0 + 1_000.0 * 4_f64.powf(0.75), 400.0 * 9_f64.powf(0.75)]
    );
    // κ: 9,000 queued of a prompt of 10,000 are 9,000 · (1,000 + 4,500) pairs, twice that is 9,000 · 11,000
    candidates[0].pairs = 9_000 * 11_000;
    let kappa = 0.001;
    assert_eq!(
        by("lmetric-marginal(alpha=0,kappa=0.001)", &candidates),
        [
            9_000.0 + kappa * 9_000.0 * 5_500.0 + 1_000.0 + kappa * 1_000.0 * 500.0,
            400.0 + kappa * 400.0 * (600.0 + 200.0)
        ]
    );
    // 2,000 tokens of room, 1,100 used and 100 pledged: of 1,000 − 600 new ones all fit, and a fifth of the room is left
    candidates[1].kv_tokens = Some(2_000);
    candidates[1].kv_use = Some(KvUse {
        used: 1_100,
        pledged: 100,
    });
    assert_eq!(
        by("lmetric-marginal(alpha=1,capacity=true)", &candidates)[1],
        400.0 * 9.0 * 5.0
    );
    assert_eq!(by("lmetric-marginal(alpha=1)", &candidates)[1], 400.0 * 9.0);
    // what does not fit costs as if one token were left
    candidates[1].kv_use = Some(KvUse {
        used: 1_900,
        pledged: 0,
    });
    assert_eq!(
        by("lmetric-marginal(alpha=1,capacity=true)", &candidates)[1],
        400.0 * 9.0 * 2_000.0
    );
}

#[test]
fn bailian_weighs_the_missed_share_against_the_batch() {
    let candidates = [candidate(0, 900, 0, 10, 0), candidate(1, 0, 0, 2, 0)];
    let by = |text: &str| scores(named(text), ask(1, 1_000), &candidates);
    // 0.5 · 0.1 + 0.5 · 1 and 0.5 · 1 + 0.5 · 0.2
    for (got, expected) in by("bailian(lambda=0.5)").iter().zip([0.55, 0.6]) {
        assert!((got - expected).abs() < 1e-12);
    }
    assert_eq!(winner(&by("bailian(lambda=0.3)")), 1);
    assert_eq!(winner(&by("bailian")), 0);
}

#[test]
fn dynamo_adds_blocks_to_prefill_and_blocks_in_decode() {
    let mut candidates = [candidate(0, 800, 320, 4, 0), candidate(1, 0, 0, 1, 0)];
    candidates[0].resident = 1_600;
    candidates[1].resident = 160;
    let by = |text: &str| scores(named(text), ask(1, 1_600), &candidates);
    // (320 + 1600)/16 − 50 + (1600 + 1600)/16 and 100 + (160 + 1600)/16
    assert_eq!(by("dynamo"), [70.0 + 200.0, 100.0 + 110.0]);
    assert_eq!(by("dynamo(overlapCredit=0)")[0], 120.0 + 200.0);
    assert_eq!(
        by("dynamo(prefillLoadScale=2,activeRequestWeight=5)"),
        [340.0 + 20.0, 310.0 + 5.0]
    );
    // backlog above the smallest: 320/1600 of the prompt
    assert_eq!(by("dynamo(creditDecay=5)")[0], 120.0 - 25.0 + 200.0);
}

#[test]
fn dynamos_temperature_draws_the_worse_one_too() {
    let candidates = [candidate(0, 0, 0, 1, 0), candidate(1, 0, 1_600, 1, 0)];
    let mut policy = build(&config(named("dynamo(temperature=1)")));
    let mut rng = SmallRng::seed_from_u64(11);
    let asked = ask(1, 1_600);
    let view = View {
        asked: &asked,
        candidates: &candidates,
        backlog: &[],
    };
    let mut first = 0;
    for _ in 0..10_000 {
        let mut scores = Vec::new();
        policy.score(&view, &mut scores, &mut rng);
        first += u32::from(winner(&scores) == 0);
    }
    // e / (e + 1) = 0.731, standard deviation 44
    assert!((7_100..7_500).contains(&first), "{first}");
}

#[test]
fn llm_d_adds_queue_cache_and_prefix_scores() {
    let mut candidates = [
        candidate(0, 800, 0, 9, 4),
        candidate(1, 0, 0, 3, 0),
        candidate(2, 1_600, 0, 9, 2),
    ];
    candidates[0].resident = 5_000;
    for candidate in &mut candidates {
        candidate.kv_tokens = Some(10_000);
    }
    assert_eq!(
        scores(named("llm-d"), ask(1, 1_600), &candidates),
        [
            -(0.0 + 2.0 * 0.5 + 3.0 * 0.5),
            -(2.0 + 2.0 + 0.0),
            -(2.0 * 0.5 + 2.0 + 3.0)
        ]
    );
    // a scrape knows better than the prompts in flight
    candidates[0].kv_use = Some(KvUse {
        used: 2_500,
        pledged: 4_000,
    });
    assert_eq!(
        scores(named("llm-d(queue=0,prefix=0)"), ask(1, 1_600), &candidates)[0],
        -(2.0 * 0.75)
    );
    assert_eq!(
        scores(named("llm-d(kv=0,prefix=0)"), ask(1, 1_600), &candidates[1..2]),
        [-2.0],
        "equal queues count as empty"
    );
}

/// 1 ms for each token in a step, 10 ms for each decode, 1 µs for each token of context.
struct Ruler;

impl StepModel for Ruler {
    fn step_seconds(&self, chunks: &[PrefillChunk], decodes: u32, decode_context: u64) -> f64 {
        let tokens: u32 = chunks.iter().map(|chunk| chunk.tokens).sum();
        f64::from(tokens) * 1e-3 + f64::from(decodes) * 1e-2 + decode_context as f64 * 1e-6
    }

    fn most_tokens(&self) -> u32 {
        100
    }

    fn kappa(&self) -> f64 {
        0.01
    }
}

fn modelled(text: &str) -> SchedulerConfig {
    SchedulerConfig {
        engine: Some(EngineModel::new(Ruler)),
        ..config(named(text))
    }
}

#[test]
fn the_forecast_rolls_chunks_beside_decodes_until_the_first_token() {
    let mut candidates = [candidate(0, 0, 130, 3, 1), candidate(1, 0, 0, 0, 0)];
    candidates[0].resident = 650;
    candidates[0].backlog = (0, 1);
    let backlog = [Queued {
        left: 130,
        tokens: 150,
    }];
    let scores = scores_with(&modelled("llm-d-ttft"), ask(1, 120), &candidates, &backlog);
    // two decodes over 500 tokens leave room for 98 a step: 98; 32 + 66 of ours; 54 of ours beside three decodes over 650
    let decode = 0.02 + 500e-6;
    let expected = 0.098 + decode + 0.098 + decode + 0.054 + 0.03 + 650e-6;
    assert!((scores[0] - expected).abs() < 1e-9, "{scores:?} {expected}");
    assert!((scores[1] - 0.120).abs() < 1e-9);
}

#[test]
fn a_tuned_forecast_is_more_than_a_fifth_off_once_in_ten() {
    let candidates: Vec<Candidate> = (0..20_000).map(|_| candidate(0, 0, 0, 0, 0)).collect();
    let scores = scores_with(
        &modelled("llm-d-ttft(error=0.122)"),
        ask(1, 100),
        &candidates,
        &[],
    );
    let off = scores
        .iter()
        .filter(|score| (*score / 0.1 - 1.0).abs() > 0.2)
        .count();
    assert!((1_800..2_250).contains(&off), "{off}");
}

#[test]
fn polyserve_takes_the_fullest_that_keeps_its_limits() {
    let mut candidates = [
        candidate(0, 0, 0, 1, 0),
        candidate(1, 0, 0, 4, 0),
        candidate(2, 0, 0, 9, 0),
    ];
    let asked = ask(1, 100);
    let by =
        |text: &str, candidates: &[Candidate]| winner(&scores_with(&modelled(text), asked, candidates, &[]));
    // TPOT 20, 50 and 100 ms and a bit
    assert_eq!(by("polyserve(tpot=0.06)", &candidates), 1);
    assert_eq!(by("polyserve(tpot=0.2)", &candidates), 2);
    assert_eq!(by("polyserve(tpot=0.001)", &candidates), 0, "none: the least");
    candidates[1].batch = 5;
    candidates[1].prefilling = 1;
    candidates[1].resident = 400;
    candidates[1].backlog = (0, 1);
    let backlog = [Queued {
        left: 400,
        tokens: 400,
    }];
    let scores = scores_with(
        &modelled("polyserve(tpot=0.08,ttft=0.3)"),
        asked,
        &candidates,
        &backlog,
    );
    assert_eq!(winner(&scores), 0, "its queue breaks the limit of TTFT");
}

#[test]
fn aibrix_follows_matches_until_load_is_uneven() {
    let by = |candidates: &[Candidate]| winner(&scores(named("aibrix"), ask(1, 1_000), candidates));
    let even = [
        candidate(0, 320, 0, 4, 0),
        candidate(1, 640, 0, 5, 0),
        candidate(2, 0, 0, 1, 0),
    ];
    // mean 10/3, σ 1.7: five requests are at most 5.03
    assert_eq!(by(&even), 1);
    let crowded = [
        candidate(0, 320, 0, 4, 0),
        candidate(1, 640, 0, 7, 0),
        candidate(2, 0, 0, 1, 0),
    ];
    // mean 4, σ 2.45: seven are too many
    assert_eq!(by(&crowded), 0);
    let uneven = [
        candidate(0, 320, 0, 4, 0),
        candidate(1, 640, 0, 10, 0),
        candidate(2, 0, 0, 1, 0),
    ];
    // 10 − 1 > 8: only the least loaded one remains
    assert_eq!(by(&uneven), 2);
    let cold = [candidate(0, 0, 0, 4, 0), candidate(1, 0, 0, 3, 0)];
    assert_eq!(by(&cold), 1);
}

#[test]
fn preble_exploits_long_matches_and_explores_by_the_last_three_minutes() {
    let mut policy = build(&config(PolicyKind::Preble(lmetric_policy::Preble::default())));
    let mut rng = SmallRng::seed_from_u64(1);
    let mut place = |seconds: f64, hits: [u64; 3]| {
        let candidates = [
            candidate(0, hits[0], 700, 0, 0),
            candidate(1, hits[1], 50, 0, 0),
            candidate(2, hits[2], 0, 0, 0),
        ];
        let asked = Asked {
            seconds,
            ..ask(1, 1_000)
        };
        let view = View {
            asked: &asked,
            candidates: &candidates,
            backlog: &[],
        };
        let mut scores = Vec::new();
        policy.score(&view, &mut scores, &mut rng);
        let (at, ties) = draw(&scores, |_| true, &mut rng).unwrap();
        policy.chosen(&view, at);
        (at, ties)
    };
    // more than half: the longest match, of equal ones the shorter queue
    assert_eq!(place(0.0, [600, 600, 0]), (1, 1));
    assert_eq!(place(1.0, [601, 600, 0]), (0, 1));
    // half is not more than half: the only one without history
    assert_eq!(place(2.0, [500, 0, 0]), (2, 1));
    // 1,000 new tokens cost more than 399 and 400
    assert_eq!(place(3.0, [0, 0, 0]), (0, 1));
    // after three minutes the first one's history is gone
    assert_eq!(place(180.5, [0, 0, 0]), (1, 1));
}

#[test]
fn power_of_two_takes_the_better_of_two() {
    let candidates: Vec<Candidate> = (0..4)
        .map(|slot| candidate(slot, 0, 0, u64::from(slot), 0))
        .collect();
    let mut policy = build(&config(PolicyKind::PowerOfTwo));
    let mut rng = SmallRng::seed_from_u64(5);
    let asked = ask(1, 1);
    let mut count = [0_u32; 4];
    for _ in 0..6_000 {
        let view = View {
            asked: &asked,
            candidates: &candidates,
            backlog: &[],
        };
        let mut scores = Vec::new();
        policy.score(&view, &mut scores, &mut rng);
        assert_eq!(scores.iter().filter(|score| score.is_finite()).count(), 2);
        count[winner(&scores)] += 1;
    }
    // of six pairs three hold the best, two of the rest the second, one the third
    for (got, expected) in count.iter().zip([3_000, 2_000, 1_000, 0]) {
        assert!(got.abs_diff(expected) < 150, "{count:?}");
    }
    assert_eq!(scores(PolicyKind::PowerOfTwo, asked, &candidates[..1]), [0.0]);
}

#[test]
fn sessions_stay_and_only_those_of_a_lost_endpoint_move() {
    let candidates: Vec<Candidate> = (0..8).map(|slot| candidate(slot, 0, 0, 0, 0)).collect();
    let home = |session: u64, candidates: &[Candidate]| {
        let asked = Asked {
            session: Some(session),
            ..ask(1, 100)
        };
        candidates[winner(&scores(PolicyKind::SessionAffinity, asked, candidates))].slot
    };
    let mut count = [0_u32; 8];
    for session in 0..4_000 {
        let before = home(session, &candidates);
        count[usize::from(before.0)] += 1;
        let after = home(session, &candidates[1..]);
        assert!(before == SourceId(0) || before == after);
    }
    // 500 each, standard deviation 21
    assert!(count.iter().all(|count| (410..590).contains(count)), "{count:?}");
    let loaded = [candidate(0, 0, 0, 2, 0), candidate(1, 0, 0, 1, 0)];
    assert_eq!(
        winner(&scores(PolicyKind::SessionAffinity, ask(1, 100), &loaded)),
        1
    );
}

#[test]
fn prefix_affinity_keeps_prefixes_together_within_bounded_loads() {
    let mut candidates: Vec<Candidate> = (0..4).map(|slot| candidate(slot, 0, 0, 3, 0)).collect();
    let keys: Vec<BlockKey> = (1..=20).map(BlockKey::from_raw).collect();
    let at = |keys: &[BlockKey], candidates: &[Candidate]| {
        let asked = Asked { keys, ..ask(1, 320) };
        winner(&scores(named("prefix-affinity"), asked, candidates))
    };
    let home = at(&keys, &candidates);
    assert_eq!(at(&keys[..16], &candidates), home, "256 tokens decide");
    // ⌈1.25 · 13/4⌉ = 5 requests are the most: with five it would hold a sixth
    candidates[home].batch = 4;
    assert_eq!(at(&keys, &candidates), home);
    candidates[home].batch = 6;
    assert_ne!(at(&keys, &candidates), home);
    let idle: Vec<Candidate> = (0..4).map(|slot| candidate(slot, 0, 0, 0, 0)).collect();
    assert_eq!(at(&keys, &idle), home, "an idle fleet takes one anywhere");
}
