//! What is remembered of requests that ended lately.

use lmetric_scheduler::{Outcome, Recent};

use crate::bench::{Bench, at, text};

fn close(seen: Option<f64>, expected: f64) -> bool {
    seen.is_some_and(|seen| (seen - expected).abs() < 1e-6)
}

#[test]
fn the_engines_own_count_of_cached_tokens_stands_above_the_prediction() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 100));
    bench.index_only(0, &prompt, 0, 2);
    let first = bench.pick(&prompt, at(0.0));
    bench.end(first.reservation, at(1.0));
    assert!(
        close(bench.views(at(1.0))[0].recent.hit_ratio(), 0.32),
        "32 of 100 were predicted"
    );
    let second = bench.pick(&prompt, at(1.0));
    bench.scheduler.cached_tokens(second.reservation, 96);
    bench.end(second.reservation, at(1.0));
    assert!(
        close(bench.views(at(1.0))[0].recent.hit_ratio(), 0.64),
        "and 96 of 100 were found"
    );
}

#[test]
fn times_are_means_over_requests_whose_output_was_seen() {
    let mut bench = Bench::plain(2, 16);
    let prompt = bench.prompt(&text(1, 100));
    let unseen = bench.pick_on(0, &prompt, at(0.0));
    bench.end(unseen.reservation, at(9.0));
    let recent = bench.views(at(9.0))[0].recent;
    assert_eq!((recent.ttft(), recent.tpot()), (None, None), "no body was seen");
    for (wait, tokens, span) in [(1.0, 11, 2.0), (3.0, 21, 2.0)] {
        let pick = bench.pick_on(0, &prompt, at(10.0));
        bench.scheduler.first_output(pick.reservation, at(10.0 + wait));
        // what a stream repeats changes nothing
        bench.scheduler.first_output(pick.reservation, at(10.5 + wait));
        bench.scheduler.output_tokens(pick.reservation, tokens);
        bench.end(pick.reservation, at(10.0 + wait + span));
    }
    let left = bench.pick_on(0, &prompt, at(10.0));
    bench.scheduler.first_output(left.reservation, at(12.0));
    bench.scheduler.output_tokens(left.reservation, 2);
    bench
        .scheduler
        .release(left.reservation, Outcome::ClientAbort, at(15.0));
    let failed = bench.pick_on(0, &prompt, at(10.0));
    bench
        .scheduler
        .release(failed.reservation, Outcome::ServerError, at(15.0));
    let recent = bench.views(at(15.0))[0].recent;
    // the first of the two ended two seconds before the second
    let older = (-2.0_f64 / 30.0).exp2();
    assert!(
        close(recent.ttft(), (older + 3.0 + 2.0) / (older + 2.0)),
        "{recent:?}"
    );
    assert!(
        close(recent.tpot(), (0.2 * older + 0.1) / (older + 1.0)),
        "an answer that was left has no pace: {recent:?}"
    );
    assert_eq!(bench.views(at(15.0))[1].recent, Recent::default());
}

#[test]
fn what_was_long_ago_is_forgotten() {
    let mut bench = Bench::plain(1, 16);
    let prompt = bench.prompt(&text(1, 100));
    let pick = bench.pick(&prompt, at(0.0));
    bench.end(pick.reservation, at(1.0));
    let after = |seconds: f64| bench.views(at(1.0 + seconds))[0].recent;
    assert!((after(30.0).requests - 0.5).abs() < 1e-9);
    assert!(after(60.0).hit_ratio().is_some());
    assert_eq!(after(300.0).hit_ratio(), None);
}

#[test]
fn a_fleets_figures_are_those_of_all_its_requests() {
    let one = Recent {
        requests: 3.0,
        prompt_tokens: 300.0,
        hit_tokens: 0.0,
        ..Recent::default()
    };
    let other = Recent {
        requests: 1.0,
        prompt_tokens: 100.0,
        hit_tokens: 100.0,
        ..Recent::default()
    };
    assert!(
        close(one.plus(other).hit_ratio(), 0.25),
        "not the mean of 0 and 1"
    );
    assert_eq!(Recent::default().hit_ratio(), None);
}
