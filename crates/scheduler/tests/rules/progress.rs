//! How Q follows the engine: the rules for one reservation, hand-computed.

use lmetric_prefix::{BlockKey, ContentHash};
use lmetric_scheduler::{Computed, HitCheck, Outcome, PickRequest, SchedulerConfig, TokenCheck};

use crate::bench::{Bench, GROUP, ask, at, keys, pairs, text};

#[test]
fn q_follows_the_engine_chunk_by_chunk_and_the_tail_goes_with_the_last_full_block() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 1_000)); // 62 blocks and 8 tokens
    let pick = bench.pick(&prompt, at(0.0));
    assert_eq!((pick.hit_tokens, pick.charged_tokens), (0, 1_000));
    assert_eq!(bench.q(0, at(0.0)), 1_000);
    bench.store(0, &prompt, 0, 32, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 1_000 - 32 * 16);
    bench.store(0, &prompt, 32, 61, at(0.2));
    assert_eq!(bench.q(0, at(0.2)), 1_000 - 61 * 16);
    bench.store(0, &prompt, 61, 62, at(0.3));
    assert_eq!(bench.q(0, at(0.3)), 0);
    assert!(bench.end(pick.reservation, at(0.4)));
}

#[test]
fn the_first_own_event_corrects_a_prediction_that_was_too_high() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 640));
    bench.index_only(0, &prompt, 0, 30);
    let pick = bench.pick(&prompt, at(0.0));
    assert_eq!(pick.hit_tokens, 480);
    bench.evict(0, &prompt, 10, 30);
    bench.store(0, &prompt, 10, 12, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 640 - 12 * 16, "fell to block 10, rose to 12");
    bench.store(0, &prompt, 12, 40, at(0.2));
    assert_eq!(bench.q(0, at(0.2)), 0);
    bench.end(pick.reservation, at(0.3));
    assert_eq!(
        bench.scheduler.take_hit_checks(),
        [HitCheck {
            predicted: 480,
            real: 160
        }]
    );
}

#[test]
fn the_first_own_event_corrects_a_prediction_that_was_too_low() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 648));
    let pick = bench.pick(&prompt, at(0.0));
    bench.store(0, &prompt, 25, 26, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 648 - 26 * 16);
    bench.end(pick.reservation, at(0.3));
    assert_eq!(
        bench.scheduler.take_hit_checks(),
        [HitCheck {
            predicted: 0,
            real: 400
        }]
    );
}

#[test]
fn a_key_before_the_predicted_hit_is_not_its_own_while_another_fills_it() {
    let mut bench = Bench::plain(1, 16);
    let shared = text(1, 320);
    let first = bench.prompt(&[shared.clone(), text(2, 160)].concat());
    let second = bench.prompt(&[shared, text(3, 160)].concat());
    let filler = bench.pick(&first, at(0.0));
    let copy = bench.pick(&second, at(0.0));
    assert_eq!(
        (filler.charged_tokens, copy.hit_tokens, copy.charged_tokens),
        (480, 320, 160)
    );
    bench.store(0, &first, 0, 30, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 160, "the copy has not begun");
    bench.store(0, &second, 20, 30, at(0.2));
    assert_eq!(bench.q(0, at(0.2)), 0);
    bench.end(copy.reservation, at(0.3));
    assert_eq!(
        bench.scheduler.take_hit_checks(),
        [HitCheck {
            predicted: 320,
            real: 320
        }]
    );
}

#[test]
fn a_key_before_the_predicted_hit_is_its_own_when_nobody_fills_it() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 320));
    bench.index_only(0, &prompt, 0, 20);
    bench.pick(&prompt, at(0.0));
    assert_eq!(
        bench.q(0, at(0.0)),
        16,
        "at least the last token is computed: one block"
    );
    bench.evict(0, &prompt, 5, 20);
    bench.store(0, &prompt, 5, 10, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 160);
}

#[test]
fn one_event_advances_several_reservations() {
    let config = SchedulerConfig {
        overlay: false,
        ..SchedulerConfig::default()
    };
    let mut bench = Bench::new(1, 16, config);
    let prompt = bench.prompt(&text(1, 328));
    bench.pick(&prompt, at(0.0));
    bench.pick(&prompt, at(0.0));
    assert_eq!(bench.q(0, at(0.0)), 656);
    bench.store(0, &prompt, 0, 10, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 336);
    bench.store(0, &prompt, 10, 20, at(0.2));
    assert_eq!(bench.q(0, at(0.2)), 0);
}

#[test]
fn a_full_hit_goes_at_the_first_store_whose_parent_is_its_last_prompt_block() {
    let mut bench = Bench::plain(1, 16);
    let tokens = text(1, 330); // 20 blocks and 10 tokens
    let prompt = bench.prompt(&tokens);
    bench.index_only(0, &prompt, 0, 20);
    let pick = bench.pick(&prompt, at(0.0));
    assert_eq!((pick.charged_tokens, bench.q(0, at(0.0))), (10, 10));
    let other = keys(&prompt)[18];
    bench
        .scheduler
        .stored(bench.ids[0].slot, &[(other, BlockKey::from_raw(7))], at(0.0));
    assert_eq!(bench.q(0, at(0.0)), 10, "another parent says nothing");
    let last = keys(&prompt)[19];
    bench
        .scheduler
        .stored(bench.ids[0].slot, &[(last, BlockKey::from_raw(8))], at(0.0));
    assert_eq!(bench.q(0, at(0.0)), 0);
}

#[test]
fn a_full_hit_goes_when_its_turn_must_have_come() {
    let mut bench = Bench::plain(1, 16);
    let cached = bench.prompt(&text(1, 330));
    bench.index_only(0, &cached, 0, 20);
    let cold = bench.prompt(&text(2, 8_000));
    bench.pick(&cold, at(0.0));
    bench.pick(&cached, at(0.0));
    assert_eq!(bench.q(0, at(1.0)), 8_010, "8,010 tokens at 8,000 per second");
    assert_eq!(bench.q(0, at(1.002)), 8_000);
}

#[test]
fn what_is_ahead_of_a_full_hit_may_go_faster_than_the_rate_says() {
    let mut bench = Bench::plain(1, 16);
    let cached = bench.prompt(&text(1, 330));
    bench.index_only(0, &cached, 0, 20);
    let cold = bench.prompt(&text(2, 8_000));
    bench.pick(&cold, at(0.0));
    bench.pick(&cached, at(0.0));
    bench.store(0, &cold, 0, 500, at(0.05));
    assert_eq!(bench.q(0, at(0.05)), 10);
    assert_eq!(bench.q(0, at(0.0515)), 0, "own 10 tokens take 1.25 ms");
}

#[test]
fn the_first_output_and_the_end_release_q_in_any_order_and_once() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 1_000));
    let pick = bench.pick(&prompt, at(0.0));
    bench.scheduler.first_output(pick.reservation, at(0.1));
    assert_eq!((bench.q(0, at(0.1)), bench.views(at(0.1))[0].bs), (0, 1));
    bench.store(0, &prompt, 0, 30, at(0.2));
    assert_eq!(bench.q(0, at(0.2)), 0, "late events charge nothing again");
    assert!(bench.end(pick.reservation, at(0.3)));
    assert!(!bench.end(pick.reservation, at(0.3)));
    bench.scheduler.first_output(pick.reservation, at(0.4));
    let view = &bench.views(at(0.4))[0];
    assert_eq!((view.q, view.bs, view.optimistic_blocks), (0, 0, 0));
}

#[test]
fn q_falls_by_rate_where_the_source_is_not_live() {
    let mut bench = Bench::plain(2, 16);
    bench.scheduler.set_source_live(bench.ids[0], false, at(0.0));
    let first = bench.prompt(&text(1, 4_000));
    let second = bench.prompt(&text(2, 4_000));
    bench.pick_on(0, &first, at(0.0));
    bench.pick_on(0, &second, at(0.0));
    assert_eq!(
        bench.q(0, at(0.25)),
        6_000,
        "8,000 tokens per second, one after the other"
    );
    assert_eq!(bench.q(0, at(0.5)), 4_000);
    assert_eq!(bench.scheduler.counters().released_by_rate, 1);
    assert_eq!(bench.q(0, at(1.1)), 0);
    assert_eq!(bench.scheduler.counters().released_by_rate, 2);
}

#[test]
fn q_falls_by_rate_where_tokens_are_estimates_and_once_trust_is_lost() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 8_000));
    let prompts = std::slice::from_ref(&prompt);
    let request = PickRequest {
        estimated: true,
        ..ask(prompts)
    };
    bench.try_pick(&request, at(0.0)).unwrap();
    assert_eq!(bench.q(0, at(0.5)), 4_000);
    assert_eq!(bench.q(0, at(1.0)), 0);
    let cold = bench.prompt(&text(2, 8_000));
    bench.pick(&cold, at(2.0));
    assert_eq!(
        bench.q(0, at(2.5)),
        8_000,
        "a live source is not believed to have moved"
    );
    bench.scheduler.set_source_live(bench.ids[0], false, at(2.5));
    assert_eq!(bench.q(0, at(3.0)), 4_000);
}

#[test]
fn the_rate_is_what_the_pool_was_seen_to_store() {
    let mut bench = Bench::plain(2, 16);
    bench.scheduler.set_source_live(bench.ids[1], false, at(0.0));
    let prompt = bench.prompt(&text(1, 80_000));
    bench.pick_on(0, &prompt, at(0.0));
    for step in 1..=20_usize {
        // 250 blocks in 0.2 s: 20,000 tokens per second
        bench.store(0, &prompt, 250 * (step - 1), 250 * step, at(0.2 * step as f64));
    }
    let other = bench.prompt(&text(2, 40_000));
    bench.pick_on(1, &other, at(4.5));
    let left = bench.q(1, at(5.5));
    assert!((19_000..=21_000).contains(&left), "{left}");
}

#[test]
fn blocks_of_before_that_found_their_place_are_progress_and_no_speed() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 32_000));
    bench.pick_on(0, &prompt, at(0.0));
    for step in 1..=5_usize {
        bench.store(0, &prompt, 250 * (step - 1), 250 * step, at(0.2 * step as f64));
    }
    let slot = bench.ids[0].slot;
    let (others, own) = (bench.prompt(&text(2, 80_000)), pairs(&prompt, 1_250, 1_500));
    let earlier = [
        (Computed::Earlier, &pairs(&others, 0, 5_000)[..]),
        (Computed::Earlier, &own),
    ];
    bench.scheduler.announced(slot, &earlier, at(1.0));
    assert_eq!(bench.q(0, at(1.0)), 8_000);
    let rate = bench.views(at(1.0))[0].rate;
    assert!((19_000.0..=21_000.0).contains(&rate), "{rate}");
}

#[test]
fn speed_divides_the_clock() {
    let config = SchedulerConfig {
        speed: 4.0,
        ..SchedulerConfig::default()
    };
    let mut bench = Bench::new(1, 16, config);
    bench.scheduler.set_source_live(bench.ids[0], false, at(0.0));
    let prompt = bench.prompt(&text(1, 32_000));
    bench.pick(&prompt, at(0.0));
    assert_eq!(bench.q(0, at(0.5)), 16_000);
}

#[test]
fn a_chain_that_stops_at_a_placeholder_leaves_the_rest_to_the_clock() {
    let mut bench = Bench::plain(1, 16);
    let mut prompt = bench.prompt(&text(1, 160));
    prompt.tokens = 160 + 1_024 + 40;
    bench.pick(&prompt, at(0.0));
    bench.store(0, &prompt, 0, 10, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 1_064);
    assert_eq!(bench.q(0, at(0.4)), 0);
}

#[test]
fn several_prompts_count_together_and_copies_count_once() {
    let mut bench = Bench::plain(1, 16);
    let prompts = [bench.prompt(&text(1, 320)), bench.prompt(&text(2, 160))];
    let request = PickRequest {
        weight: 4,
        ..ask(&prompts)
    };
    let pick = bench.try_pick(&request, at(0.0)).unwrap();
    let view = &bench.views(at(0.0))[0];
    assert_eq!((pick.charged_tokens, view.q, view.bs), (480, 480, 4));
    bench.store(0, &prompts[1], 0, 10, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 320);
    bench.end(pick.reservation, at(0.2));
    let view = &bench.views(at(0.2))[0];
    assert_eq!((view.q, view.bs), (0, 0));
}

#[test]
fn cached_tokens_check_the_prediction_once_and_infer_holders() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 320));
    bench.index_only(0, &prompt, 0, 4);
    let pick = bench.pick(&prompt, at(0.0));
    let check = HitCheck {
        predicted: 64,
        real: 160,
    };
    let inferred = bench.scheduler.inferred_holders(pick.reservation, 160);
    assert_eq!(inferred, Some((bench.ids[0].slot, keys(&prompt)[..10].to_vec())));
    assert_eq!(bench.scheduler.inferred_holders(pick.reservation, 64), None);
    assert_eq!(bench.scheduler.cached_tokens(pick.reservation, 160), Some(check));
    assert_eq!(bench.scheduler.cached_tokens(pick.reservation, 160), None);
    bench.store(0, &prompt, 10, 20, at(0.1));
    bench.end(pick.reservation, at(0.2));
    assert_eq!(bench.scheduler.take_hit_checks(), [check]);
}

#[test]
fn requests_that_leave_while_queued_are_no_token_mismatch() {
    let mut bench = Bench::plain(1, 16);
    let served = bench.prompt(&text(1, 320));
    let first = bench.pick(&served, at(0.0));
    let left: Vec<_> = (2..10)
        .map(|seed| {
            let prompt = bench.prompt(&text(seed, 320));
            bench.pick(&prompt, at(0.0)).reservation
        })
        .collect();
    bench.store(0, &served, 0, 20, at(0.1));
    // decoded output comes block by block
    bench.scheduler.stored(
        bench.ids[0].slot,
        &[(BlockKey::from_raw(1), BlockKey::from_raw(2))],
        at(0.1),
    );
    for reservation in left {
        bench.end(reservation, at(0.2));
    }
    bench.end(first.reservation, at(0.2));
    bench.scheduler.tick(at(2.0));
    assert_eq!(bench.scheduler.counters().token_mismatches, 0);
}

#[test]
fn a_request_none_of_whose_keys_are_stored_is_a_token_mismatch() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 320));
    let other = bench.prompt(&text(2, 320));
    let wrong = bench.pick(&prompt, at(0.0));
    let late = bench.pick(&other, at(0.0));
    bench.scheduler.stored(
        bench.ids[0].slot,
        &[1, 2, 11, 12].map(|raw| (BlockKey::from_raw(raw), BlockKey::from_raw(raw + 1))),
        at(0.1),
    );
    bench.end(wrong.reservation, at(0.2));
    bench.end(late.reservation, at(0.2));
    bench.store(0, &other, 0, 20, at(0.3));
    let right = bench.pick(&bench.prompt(&text(3, 320)), at(0.4));
    bench.store(0, &bench.prompt(&text(3, 320)), 0, 20, at(0.5));
    bench.end(right.reservation, at(0.6));
    bench.scheduler.tick(at(1.1));
    assert_eq!(
        bench.scheduler.counters().token_mismatches,
        0,
        "an event may still come"
    );
    bench.scheduler.tick(at(1.3));
    assert_eq!(bench.scheduler.counters().token_mismatches, 1);
    let check = |matched| TokenCheck {
        group: GROUP.into(),
        matched,
    };
    assert_eq!(
        bench.scheduler.take_token_checks(),
        [check(true), check(false), check(true)]
    );
}

#[test]
fn an_orphan_run_is_found_by_its_contents_in_an_open_reservation() {
    let mut bench = Bench::plain(2, 16);
    let prompt = bench.prompt(&text(1, 320));
    bench.pick_on(0, &prompt, at(0.0));
    let chain = &prompt.chains[0].1;
    let found = bench
        .scheduler
        .find_contents(bench.ids[0].slot, &chain.contents[12..15]);
    assert_eq!(found, Some((chain.keys[11], chain.keys[..12].to_vec())));
    let whole = bench.scheduler.find_contents(bench.ids[0].slot, &chain.contents);
    assert_eq!(whole, Some((chain.root, Vec::new())));
    let elsewhere = bench
        .scheduler
        .find_contents(bench.ids[1].slot, &chain.contents[12..15]);
    assert_eq!(elsewhere, None);
    let unknown = [chain.contents[12], ContentHash::of(&[1, 2, 3])];
    assert_eq!(bench.scheduler.find_contents(bench.ids[0].slot, &unknown), None);
    assert_eq!(bench.scheduler.find_contents(bench.ids[0].slot, &[]), None);
}

#[test]
fn the_outcomes_are_counted() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 32));
    for (at_index, outcome) in [
        Outcome::Done,
        Outcome::ClientAbort,
        Outcome::ServerError,
        Outcome::Unreachable,
        Outcome::Unknown,
    ]
    .into_iter()
    .enumerate()
    {
        let pick = bench.pick(&prompt, at(0.0));
        assert!(bench.scheduler.release(pick.reservation, outcome, at(0.0)));
        assert_eq!(bench.scheduler.counters().released[at_index], 1);
    }
}
