//! Optimistic holders: what an open reservation is about to fill.

use lmetric_scheduler::{Outcome, SchedulerConfig};

use crate::bench::{Bench, at, text};

#[test]
fn two_picks_in_a_row_with_one_prefix_see_each_other() {
    let mut bench = Bench::plain(1, 16);
    let system = text(1, 2_048);
    let first = bench.prompt(&[system.clone(), text(2, 100)].concat());
    let second = bench.prompt(&[system, text(3, 100)].concat());
    assert_eq!(bench.pick(&first, at(0.0)).hit_tokens, 0);
    let pick = bench.pick(&second, at(0.0));
    assert_eq!((pick.hit_tokens, pick.charged_tokens), (2_048, 100));
}

#[test]
fn with_the_overlay_off_they_do_not() {
    let config = SchedulerConfig {
        overlay: false,
        ..SchedulerConfig::default()
    };
    let mut bench = Bench::new(1, 16, config);
    let prompt = bench.prompt(&text(1, 2_048));
    bench.pick(&prompt, at(0.0));
    assert_eq!(bench.pick(&prompt, at(0.0)).hit_tokens, 0);
}

#[test]
fn held_and_filled_runs_join_in_any_order() {
    let mut bench = Bench::plain(1, 16);
    let tokens = text(1, 1_600);
    let whole = bench.prompt(&tokens);
    // held 0..20, filled 20..40 by a shorter prompt, held 40..60, filled 60..80 by another, the rest nobody's
    bench.index_only(0, &whole, 0, 20);
    let shorter = bench.prompt(&tokens[..640]);
    bench.pick(&shorter, at(0.0));
    let middle = bench.prompt(&tokens[..1_280]);
    bench.index_only(0, &whole, 40, 60);
    bench.pick(&middle, at(0.0));
    let pick = bench.pick(&whole, at(0.0));
    assert_eq!(pick.hit_tokens, 1_280);
    assert_eq!(bench.views(at(0.0))[0].optimistic_blocks, 20 + 20 + 20);
}

#[test]
fn an_entry_lives_until_its_key_is_stored() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 800));
    bench.pick(&prompt, at(0.0));
    assert_eq!(bench.views(at(0.0))[0].optimistic_blocks, 50);
    bench.store(0, &prompt, 0, 30, at(0.1));
    assert_eq!(bench.views(at(0.1))[0].optimistic_blocks, 20);
    bench.evict(0, &prompt, 0, 30);
    assert_eq!(
        bench.pick(&prompt, at(0.2)).hit_tokens,
        0,
        "stored and evicted: nobody's"
    );
}

#[test]
fn when_a_filler_ends_unstored_the_oldest_that_counted_on_it_is_charged_again() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 1_608)); // 100 blocks and 8 tokens
    let filler = bench.pick(&prompt, at(0.0));
    let second = bench.pick(&prompt, at(0.0));
    let third = bench.pick(&prompt, at(0.0));
    assert_eq!(bench.q(0, at(0.0)), 1_608 + 8 + 8);
    bench.store(0, &prompt, 0, 25, at(0.0));
    assert_eq!(bench.q(0, at(0.0)), 1_208 + 8 + 8);
    bench
        .scheduler
        .release(filler.reservation, Outcome::ClientAbort, at(0.0));
    assert_eq!(
        bench.q(0, at(0.0)),
        1_208 + 8,
        "the second fills now, the third counts on it"
    );
    bench
        .scheduler
        .release(second.reservation, Outcome::ClientAbort, at(0.0));
    assert_eq!(bench.q(0, at(0.0)), 1_208);
    bench.store(0, &prompt, 25, 100, at(0.1));
    assert_eq!(bench.q(0, at(0.1)), 0);
    bench.end(third.reservation, at(0.2));
    assert_eq!(bench.views(at(0.2))[0].optimistic_blocks, 0);
}

#[test]
fn those_that_share_only_a_part_are_charged_again_for_that_part() {
    let mut bench = Bench::plain(1, 16);
    let system = text(1, 800);
    let first = bench.prompt(&[system.clone(), text(2, 160)].concat());
    let second = bench.prompt(&[system, text(3, 168)].concat());
    let filler = bench.pick(&first, at(0.0));
    let counted = bench.pick(&second, at(0.0));
    assert_eq!(counted.charged_tokens, 168);
    bench.store(0, &first, 0, 55, at(0.0));
    bench.end(filler.reservation, at(0.0));
    assert_eq!(bench.q(0, at(0.0)), 168, "all that it counted on is stored");

    let first = bench.prompt(&[text(4, 800), text(5, 160)].concat());
    let second = bench.prompt(&[text(4, 800), text(6, 168)].concat());
    let filler = bench.pick(&first, at(0.0));
    bench.pick(&second, at(0.0));
    bench.store(0, &first, 0, 45, at(0.0));
    bench.evict(0, &first, 30, 45);
    bench.end(filler.reservation, at(0.0));
    assert_eq!(bench.q(0, at(0.0)), 168 + 168 + 20 * 16, "evicted meanwhile");
}

#[test]
fn a_reservation_that_the_gateway_moved_takes_its_load_and_its_blocks_along() {
    let mut bench = Bench::plain(2, 16);
    let prompt = bench.prompt(&text(1, 808));
    let filler = bench.pick_on(0, &prompt, at(0.0));
    bench.pick_on(0, &prompt, at(0.0));
    let elsewhere = bench.views(at(0.0))[1].address;
    bench
        .scheduler
        .served_by(filler.reservation, filler.address, at(0.0));
    assert_eq!(bench.scheduler.counters().moved, 0);
    bench.scheduler.served_by(filler.reservation, elsewhere, at(0.0));
    let views = bench.views(at(0.0));
    assert_eq!(
        (views[0].q, views[0].bs, views[1].q, views[1].bs),
        (808, 1, 808, 1)
    );
    assert_eq!(bench.scheduler.counters().moved, 1);
    bench.store(1, &prompt, 0, 20, at(0.1));
    assert_eq!(bench.views(at(0.1))[1].q, 808 - 320);
    bench
        .scheduler
        .served_by(filler.reservation, "192.0.2.9:1".parse().unwrap(), at(0.1));
    assert_eq!(bench.views(at(0.1))[1].bs, 0, "nobody's that we know");
    assert!(bench.end(filler.reservation, at(0.2)));
    assert_eq!(bench.scheduler.open(), 1);
}
