//! `lmetric replay` against a server that is slow, wrong or gone.

use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser as _;
use lmetric_cli::{
    client::FailureKind,
    replay::{self, ReplayArgs},
    run_file::RunFile,
};
use tokio_util::sync::CancellationToken;

use crate::support::{self, Answer, Fake};

#[derive(clap::Parser)]
struct Harness {
    #[command(flatten)]
    args: ReplayArgs,
}

fn args(folder: &Path, url: &str, more: &[&str]) -> ReplayArgs {
    let trace = folder.join("trace.jsonl").display().to_string();
    let out = folder.join("run.json").display().to_string();
    let fixed = [
        "replay", "--trace", &trace, "--url", url, "--out", &out, "--model", "m",
    ];
    Harness::parse_from(fixed.iter().chain(more)).args
}

async fn run(folder: &Path, url: &str, more: &[&str]) -> (ExitCode, RunFile) {
    let code = replay::run(args(folder, url, more), CancellationToken::new())
        .await
        .unwrap();
    (code, RunFile::open(&folder.join("run.json")).unwrap())
}

fn fast() -> Answer {
    Answer::Tokens {
        wait: Duration::ZERO,
        gap: Duration::ZERO,
        cached: 512,
    }
}

/// ExitCode has no equality; its text tells.
fn is(code: ExitCode, number: u8) -> bool {
    format!("{code:?}") == format!("{:?}", ExitCode::from(number))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_does_not_delay_arrivals() {
    let fake = Fake::start(|_| Answer::Tokens {
        wait: Duration::from_secs(1),
        gap: Duration::ZERO,
        cached: 0,
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 60, 10, 1);
    let (code, file) = run(folder.path(), &fake.url(), &[]).await;
    assert!(is(code, 0));
    assert_eq!((file.summary.requests, file.summary.errors), (60, 0));
    assert!(
        file.summary.peak_in_flight >= 55,
        "answers took longer than all arrivals: {}",
        file.summary.peak_in_flight
    );
    let seen = fake.seen();
    let span =
        seen.iter().map(|seen| seen.at).max().unwrap() - seen.iter().map(|seen| seen.at).min().unwrap();
    assert!(
        (Duration::from_millis(550)..Duration::from_millis(950)).contains(&span),
        "{span:?} for 590 ms"
    );
    assert!(file.summary.ttft_ms.p50 >= 1_000.0, "{:?}", file.summary.ttft_ms);
    assert!(file.run.wall_s < 5.0, "{}", file.run.wall_s);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_client_sees_is_measured_in_model_time() {
    let fake = Fake::start(|_| Answer::Tokens {
        wait: Duration::from_millis(100),
        gap: Duration::from_millis(20),
        cached: 512,
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 10, 80, 6);
    let (code, file) = run(
        folder.path(),
        &fake.url(),
        &[
            "--speed",
            "4",
            "--rate-scale",
            "2",
            "--label",
            "lmetric",
            "--salt",
            "s",
        ],
    )
    .await;
    assert!(is(code, 0));
    let summary = &file.summary;
    assert!(
        (400.0..700.0).contains(&summary.ttft_ms.p50),
        "{:?}",
        summary.ttft_ms
    );
    assert!(
        (80.0..150.0).contains(&summary.tpot_ms.p50),
        "{:?}",
        summary.tpot_ms
    );
    assert!(
        (800.0..1_500.0).contains(&summary.e2e_ms.p50),
        "{:?}",
        summary.e2e_ms
    );
    assert_eq!(
        (
            summary.prompt_tokens,
            summary.cached_tokens,
            summary.output_tokens
        ),
        (6_000, 5_120, 60)
    );
    assert!((summary.hit_ratio - 512.0 / 600.0).abs() < 1e-9);
    assert_eq!(
        file.records.rows[9].arrival_ms, 360.0,
        "80 ms apart at twice the rate, in model time"
    );
    assert_eq!(
        (file.run.planned, file.run.unfinished, file.run.interrupted),
        (10, 0, false)
    );
    let seen = fake.seen();
    assert!(seen.iter().all(|seen| seen.path == "/v1/completions"));
    assert_eq!(
        seen[0].headers["x-request-id"].to_str().unwrap().split_at(8).0,
        "lmetric-"
    );
    let prompts: Vec<_> = seen
        .iter()
        .map(|seen| seen.body["prompt"].as_array().unwrap())
        .collect();
    assert_eq!(prompts[0][..512], prompts[1][..512]);
    assert_ne!(prompts[0][512..], prompts[1][512..]);
}

#[tokio::test]
async fn chat_text_skips_the_opening_chunk_and_sends_the_users_headers() {
    let fake = Fake::start(|_| Answer::Tokens {
        wait: Duration::from_millis(60),
        gap: Duration::ZERO,
        cached: 0,
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 2, 1, 3);
    let more = [
        "--prompt",
        "text",
        "--header",
        "Authorization: Bearer k",
        "--respect-eos",
    ];
    let (code, file) = run(folder.path(), &fake.url(), &more).await;
    assert!(is(code, 0));
    assert!(
        file.summary.ttft_ms.p50 >= 60.0,
        "the opening chunk came at once: {:?}",
        file.summary.ttft_ms
    );
    assert_eq!(file.summary.prompt_tokens, 1_200);
    let seen = &fake.seen()[0];
    assert_eq!(
        (
            seen.path.as_str(),
            seen.headers["authorization"].to_str().unwrap()
        ),
        ("/v1/chat/completions", "Bearer k")
    );
    assert_eq!(seen.body["ignore_eos"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_failure_is_told_apart_and_counted() {
    let fake = Fake::start(|number| match number {
        0 => Answer::Status(503),
        1 => Answer::Break,
        2 => Answer::EngineError,
        3 => Answer::Plain,
        4 => Answer::Hang,
        5 => Answer::Status(429),
        _ => fast(),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 8, 40, 2);
    let (code, file) = run(folder.path(), &fake.url(), &["--timeout", "1s"]).await;
    assert!(is(code, 1), "six failures are more than the none allowed");
    let kinds: Vec<_> = file
        .summary
        .errors_by_kind
        .iter()
        .map(|(kind, count)| (kind.as_str(), *count))
        .collect();
    let expected = [
        "cut_off",
        "engine_error",
        "not_a_stream",
        "status_429",
        "status_503",
        "timeout",
    ];
    assert_eq!(kinds, expected.map(|kind| (kind, 1)));
    assert_eq!(
        file.summary.error_examples["status_503"],
        "503 Service Unavailable: no endpoint is ready"
    );
    assert_eq!(
        file.summary.error_examples["engine_error"],
        "EngineCore encountered an issue."
    );
    assert_eq!(
        (
            file.summary.requests,
            file.summary.errors,
            file.summary.ttft_ms.count
        ),
        (8, 6, 2)
    );
    let broken = file.records.rows[1];
    assert_eq!(
        (broken.error, broken.status),
        (Some(FailureKind::CutOff), Some(200))
    );
    assert!(
        broken.ttft_ms.is_some(),
        "what was measured before the break is kept"
    );

    let (code, _) = run(folder.path(), &fake.url(), &["--max-errors", "0"]).await;
    assert!(is(code, 0), "by now all answers are good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_is_gone_is_a_connect_error() {
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 3, 1, 1);
    let (code, file) = run(folder.path(), "http://127.0.0.1:1", &["--max-errors", "3"]).await;
    assert!(is(code, 0));
    assert_eq!(file.summary.errors_by_kind["connect"], 3);
    assert!(
        file.summary.error_examples["connect"]
            .to_lowercase()
            .contains("refused"),
        "{:?}",
        file.summary.error_examples
    );
}

#[tokio::test]
async fn an_https_address_is_believed_by_its_authority_only() {
    let (fake, certificate) = Fake::start_tls(|_| fast()).await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 2, 1, 1);
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, certificate).unwrap();
    let url = fake.url().replace("http:", "https:");
    let (code, file) = run(folder.path(), &url, &["--ca", authority.to_str().unwrap()]).await;
    assert!(is(code, 0), "{:?}", file.summary.error_examples);

    let stranger = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&authority, stranger.cert.pem()).unwrap();
    let (code, file) = run(folder.path(), &url, &["--ca", authority.to_str().unwrap()]).await;
    assert!(is(code, 1));
    assert!(
        file.summary.error_examples["connect"].contains("certificate"),
        "{:?}",
        file.summary.error_examples
    );

    std::fs::write(&authority, "nothing").unwrap();
    let args = args(folder.path(), &url, &["--ca", authority.to_str().unwrap()]);
    let text = format!(
        "{:#}",
        replay::run(args, CancellationToken::new()).await.unwrap_err()
    );
    assert!(
        text.contains("no certificate in it; give a PEM file with --ca"),
        "{text}"
    );
}

#[tokio::test]
async fn an_idle_run_without_usage_is_kept_without_a_comparison() {
    let fake = Fake::start(|_| Answer::Status(503)).await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 3, 1, 1);
    let (code, file) = run(folder.path(), &fake.url(), &["--idle", "2"]).await;
    assert!(is(code, 1));
    assert_eq!((file.summary.idle, file.summary.errors), (None, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_in_flight_bound_requests_are_refused_here_and_counted() {
    let fake = Fake::start(|_| Answer::Tokens {
        wait: Duration::from_millis(500),
        gap: Duration::ZERO,
        cached: 0,
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 10, 5, 1);
    let (code, file) = run(folder.path(), &fake.url(), &["--max-in-flight", "4"]).await;
    assert!(is(code, 1));
    assert_eq!(file.summary.errors_by_kind["in_flight_limit"], 6);
    assert!(file.summary.error_examples["in_flight_limit"].contains("--max-in-flight"));
    assert_eq!((fake.seen().len(), file.summary.peak_in_flight), (4, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interruption_aborts_what_runs_and_keeps_what_had_finished() {
    let fake = Fake::start(|number| {
        let wait = if number < 3 {
            Duration::ZERO
        } else {
            Duration::from_mins(1)
        };
        Answer::Tokens {
            wait,
            gap: Duration::ZERO,
            cached: 0,
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 1_000, 20, 1);
    let stop = CancellationToken::new();
    let later = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(600)).await;
        later.cancel();
    });
    let began = Instant::now();
    let code = replay::run(args(folder.path(), &fake.url(), &[]), stop)
        .await
        .unwrap();
    assert!(is(code, 130));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "the other 19 s of arrivals are not waited for"
    );
    let file = RunFile::open(&folder.path().join("run.json")).unwrap();
    assert!(file.run.interrupted);
    assert_eq!(
        (file.summary.requests, file.summary.errors, file.run.unfinished),
        (3, 0, 997)
    );
    let deadline = Instant::now() + Duration::from_secs(5);
    while fake.aborted() < 5 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        fake.aborted() >= 5,
        "the server saw {} clients leave",
        fake.aborted()
    );
}

#[tokio::test]
async fn an_idle_fleet_is_asked_one_request_at_a_time_and_compared_with_the_model() {
    let fake = Fake::start(|_| Answer::Tokens {
        wait: Duration::from_millis(30),
        gap: Duration::ZERO,
        cached: 0,
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 50, 1, 9);
    let (code, file) = run(folder.path(), &fake.url(), &["--idle", "4", "--speed", "2"]).await;
    assert!(is(code, 0));
    let idle = file.summary.idle.unwrap();
    assert_eq!(
        (idle.requests, fake.seen().len(), file.summary.peak_in_flight),
        (4, 4, 1)
    );
    assert!(fake.seen().iter().all(|seen| seen.body["max_tokens"] == 1));
    assert!((60.0..180.0).contains(&idle.measured_ttft_ms), "{idle:?}");
    assert!(
        (60.0..75.0).contains(&idle.model_ttft_ms),
        "600 tokens alone on an H20: {idle:?}"
    );
    assert!((idle.overhead - (idle.measured_ttft_ms / idle.model_ttft_ms - 1.0)).abs() < 1e-3);
}

#[tokio::test]
async fn input_that_cannot_be_replayed_is_one_line_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    support::trace(folder.path(), 3, 1_000, 1);
    let refused = async |more: &[&str]| {
        let args = args(folder.path(), "http://127.0.0.1:1", more);
        format!(
            "{:#}",
            replay::run(args, CancellationToken::new()).await.unwrap_err()
        )
    };
    let text = refused(&["--window", "60:70"]).await;
    assert!(
        text.contains("no request between 60 s and 70 s; the trace ends at 2 s"),
        "{text}"
    );
    let text = refused(&["--idle", "1", "--profile", "gpt-9"]).await;
    assert!(
        text.contains("--profile \"gpt-9\"") && text.contains("qwen2-7b"),
        "{text}"
    );
    let text = refused(&["--block-size", "128"]).await;
    assert!(
        text.contains("trace.jsonl:1: field \"hash_ids\"") && text.contains("--block-size"),
        "{text}"
    );
}
