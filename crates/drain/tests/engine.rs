//! Draining an engine, against pickers and engines that say what a test wants.

mod support;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lmetric_drain::{Ended, Pace, args::EngineTask, engine::drain};
use support::{Server, nobody};

const QUICK: Pace = Pace {
    poll: Duration::from_millis(20),
    answer: Duration::from_millis(200),
    reach: Duration::from_millis(400),
    linger: Duration::ZERO,
};

type Counter = Arc<AtomicU64>;

fn counter(count: u64) -> Counter {
    Arc::new(AtomicU64::new(count))
}

/// A picker whose count goes down by one with each question.
fn picker(count: u64) -> Server {
    let left = counter(count);
    Server::start(move |_, path| {
        assert_eq!(path, "/drain/1f2e");
        let now = left.load(Ordering::Relaxed);
        left.store(now.saturating_sub(1), Ordering::Relaxed);
        Some((200, format!("{{\"inFlight\": {now}}}")))
    })
}

fn metrics(running: u64, waiting: u64) -> String {
    format!(
        "vllm:num_requests_running{{engine=\"0\"}} {running}.0\nvllm:num_requests_waiting{{engine=\"0\"}} {waiting}.0\n"
    )
}

fn engine(running: &Counter) -> Server {
    let running = Arc::clone(running);
    Server::start(move |_, path| {
        Some(match path {
            "/metrics" => (200, metrics(running.load(Ordering::Relaxed), 0)),
            _ => (200, String::new()),
        })
    })
}

fn run(pickers: &[SocketAddr], engines: &[SocketAddr], timeout: Duration) -> (Ended, Duration) {
    let started = Instant::now();
    let task = EngineTask {
        pickers: pickers.iter().map(ToString::to_string).collect(),
        engines: engines.to_vec(),
        pod: "1f2e".to_owned(),
        timeout,
    };
    (drain(task, QUICK), started.elapsed())
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn every_picker_is_told_and_the_slowest_one_decides() {
    let (one, other) = (picker(0), picker(5));
    let (ended, _) = run(
        &[one.address, other.address],
        &[engine(&counter(0)).address],
        LONG,
    );
    assert_eq!(ended, Ended::Drained);
    for server in [&one, &other] {
        let asked = server.asked();
        assert_eq!(asked[0], "POST /drain/1f2e");
        assert!(
            asked[1..].iter().all(|question| question == "GET /drain/1f2e"),
            "{asked:?}"
        );
    }
    assert!(other.asked().len() >= 7, "{:?}", other.asked());
}

#[test]
fn the_engine_must_count_nothing_twice() {
    let pickers = picker(0);
    let pages = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&pages);
    let engine = Server::start(move |_, path| {
        if path != "/metrics" {
            return Some((200, String::new()));
        }
        // idle for one page only, twice
        let page = seen.fetch_add(1, Ordering::Relaxed);
        Some((200, metrics(0, u64::from(page == 1 || page == 3))))
    });
    let (ended, _) = run(&[pickers.address], &[engine.address], LONG);
    assert_eq!(ended, Ended::Drained);
    assert_eq!(pages.load(Ordering::Relaxed), 6);
}

#[test]
fn requests_that_no_picker_knows_are_waited_for() {
    let running = counter(3);
    let engine = engine(&running);
    let finish = Arc::clone(&running);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        finish.store(0, Ordering::Relaxed);
    });
    let (ended, took) = run(&[picker(0).address], &[engine.address], LONG);
    assert_eq!(ended, Ended::Drained);
    assert!(took >= Duration::from_millis(300), "{took:?}");
}

#[test]
fn a_picker_out_of_reach_is_left_out_after_a_while() {
    let alive = picker(0);
    let (ended, took) = run(&[nobody(), alive.address], &[engine(&counter(0)).address], LONG);
    assert_eq!(ended, Ended::Drained);
    assert!(took >= QUICK.reach && took < LONG / 2, "{took:?}");
}

#[test]
fn a_picker_that_hangs_is_left_out_as_well() {
    let hanging = Server::start(|_, _| None);
    let (ended, took) = run(&[hanging.address], &[engine(&counter(0)).address], LONG);
    assert_eq!(ended, Ended::Drained);
    assert!(took >= QUICK.reach && took < LONG / 2, "{took:?}");
}

#[test]
fn without_pickers_the_engines_own_count_decides() {
    let running = counter(1);
    let engine = engine(&running);
    let (ended, _) = run(&[nobody()], &[engine.address], Duration::from_secs(1));
    assert_eq!(
        ended,
        Ended::TimedOut("no picker can be reached, the engine 1".to_owned())
    );
    running.store(0, Ordering::Relaxed);
    assert_eq!(run(&[], &[engine.address], LONG).0, Ended::Drained);
}

#[test]
fn a_name_that_does_not_resolve_is_no_picker() {
    let task = EngineTask {
        pickers: vec!["no-such-name.invalid:9090".to_owned()],
        engines: vec![engine(&counter(0)).address],
        pod: "1f2e".to_owned(),
        timeout: LONG,
    };
    assert_eq!(drain(task, QUICK), Ended::Drained);
}

#[test]
fn a_dead_engine_ends_it_at_once() {
    let busy = picker(1_000);
    let (ended, took) = run(&[busy.address], &[nobody(), nobody()], LONG);
    assert_eq!(ended, Ended::Dead);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(busy.asked(), ["POST /drain/1f2e"]);
}

#[test]
fn an_engine_whose_core_died_ends_it_though_its_last_count_stands() {
    let engine = Server::start(|_, path| {
        Some(match path {
            "/metrics" => (200, metrics(7, 2)),
            _ => (503, String::new()),
        })
    });
    let (ended, took) = run(&[picker(1_000).address], &[engine.address], LONG);
    assert_eq!(ended, Ended::Dead);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn one_dead_rank_does_not_end_the_others() {
    let running = counter(1);
    let engine = engine(&running);
    let (ended, _) = run(
        &[picker(0).address],
        &[nobody(), engine.address],
        Duration::from_millis(300),
    );
    assert_eq!(
        ended,
        Ended::TimedOut("pickers count 0 requests, the engine 1".to_owned())
    );
}

#[test]
fn it_ends_at_the_timeout_and_says_what_was_left() {
    let (ended, took) = run(
        &[picker(1_000_000).address],
        &[engine(&counter(4)).address],
        Duration::from_millis(300),
    );
    assert!(
        matches!(&ended, Ended::TimedOut(left) if left.contains("the engine 4")),
        "{ended:?}"
    );
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_secs(3),
        "{took:?}"
    );
}

#[test]
fn pickers_are_told_even_without_time() {
    let picker = picker(3);
    let (ended, _) = run(&[picker.address], &[engine(&counter(1)).address], Duration::ZERO);
    assert!(matches!(ended, Ended::TimedOut(_)), "{ended:?}");
    assert_eq!(picker.asked(), ["POST /drain/1f2e"]);
}

#[test]
fn a_picker_that_restarted_is_told_again() {
    let questions = counter(0);
    let picker = Server::start(move |method, _| {
        Some(match (questions.fetch_add(1, Ordering::Relaxed), method) {
            (0, "POST") => (200, "{\"inFlight\": 2}".to_owned()),
            // it came back and knows of no drain
            (1, "GET") => (404, String::new()),
            (_, "POST" | "GET") => (200, "{\"inFlight\": 0}".to_owned()),
            _ => (405, String::new()),
        })
    });
    let (ended, _) = run(&[picker.address], &[engine(&counter(0)).address], LONG);
    assert_eq!(ended, Ended::Drained);
    assert_eq!(
        picker.asked()[..3],
        ["POST /drain/1f2e", "GET /drain/1f2e", "POST /drain/1f2e"]
    );
}

#[test]
fn a_picker_that_does_not_know_the_pod_counts_nothing() {
    let picker = Server::start(|_, _| Some((404, String::new())));
    let (ended, took) = run(&[picker.address], &[engine(&counter(0)).address], LONG);
    assert_eq!(ended, Ended::Drained);
    assert!(took < QUICK.reach, "{took:?}");
}

#[test]
fn an_engine_without_known_metrics_is_believed_through_the_pickers_only() {
    let other = Server::start(|_, _| Some((200, "up 1\n".to_owned())));
    assert_eq!(
        run(&[picker(0).address], &[other.address], LONG).0,
        Ended::Drained
    );
    let (ended, _) = run(&[], &[other.address], Duration::from_millis(200));
    assert!(matches!(ended, Ended::TimedOut(_)), "{ended:?}");
}
