//! Engines that misbehave.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::events::{drain, subscribe};
use crate::support::{Reply, fleet, get, open, post, state, until};

const SHORT: Duration = Duration::from_millis(300);

async fn fault(address: SocketAddr, fault: Value) {
    let answer = post(address, "/sim/fault", &fault).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

async fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusing_engine_closes_its_port_and_opens_it_again() {
    let fleet = fleet("--engines 2 --speed 1").await;
    let (victim, other) = (fleet.sites()[0].address, fleet.sites()[1].address);
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 50_000, "stream": true});
    let (mut stream, _) = open(victim, "/v1/completions", &body).await;
    fault(victim, json!({"kind": "refuse"})).await;
    until("it refuses", || is_refused(victim)).await;
    let mut rest = Vec::new();
    tokio::time::timeout(SHORT, stream.read_to_end(&mut rest))
        .await
        .expect("open streams are cut")
        .ok();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "and not ended");
    assert_eq!(get(other, "/health").await.status, 200);
    // through any engine's port
    fault(other, json!({"kind": "none", "engine": 0})).await;
    until("it is back", || async { !is_refused(victim).await }).await;
    assert_eq!(get(victim, "/health").await.status, 200);
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_answered_at_once_and_probes_stay_well() {
    let fleet = fleet("--speed 1").await;
    let address = fleet.sites()[0].address;
    fault(address, json!({"kind": "status", "status": 503, "for": "10s"})).await;
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 100});
    until("it is in force", || async {
        post(address, "/v1/completions", &body).await.status == 503
    })
    .await;
    assert!(post(address, "/v1/completions", &body).await.json()["error"]["message"].is_string());
    assert_eq!(get(address, "/health").await.status, 200);
    assert_eq!(get(address, "/metrics").await.status, 200);
    fault(address, json!({"kind": "none"})).await;
    until("it is over", || async {
        post(
            address,
            "/v1/completions",
            &json!({"prompt": [1], "max_tokens": 1}),
        )
        .await
        .status
            == 200
    })
    .await;
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_engine_accepts_and_says_nothing_until_it_goes_on() {
    let fleet = fleet("--speed 50").await;
    let address = fleet.sites()[0].address;
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 2_000, "stream": true});
    let (mut stream, mut bytes) = open(address, "/v1/completions", &body).await;
    fault(address, json!({"kind": "hang", "for": "600ms"})).await;
    until("it hangs", || async { state(address).await["fault"] == "Hang" }).await;
    let asked = tokio::time::timeout(SHORT, get(address, "/health")).await;
    assert!(asked.is_err(), "no answer while it hangs");
    let generated = state(address).await["generated_tokens"].clone();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        state(address).await["generated_tokens"],
        generated,
        "no step while it hangs"
    );
    stream.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(Reply::parse(&bytes).events().len(), 2_000);
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_engine_cuts_its_streams_and_comes_back_cold() {
    let fleet = fleet("--speed 20").await;
    let address = fleet.sites()[0].address;
    let started = |page: String| {
        let line = page
            .lines()
            .find(|line| line.starts_with("process_start_time_seconds "))
            .unwrap()
            .to_owned();
        line.split(' ').nth(1).unwrap().parse::<f64>().unwrap()
    };
    let before = started(get(address, "/metrics").await.body);
    let long = json!({"prompt": (0..64).collect::<Vec<u32>>(), "max_tokens": 60_000, "stream": true});
    let (mut stream, mut bytes) = open(address, "/v1/completions", &long).await;
    fault(address, json!({"kind": "crash", "for": "400ms"})).await;
    stream.read_to_end(&mut bytes).await.ok();
    let cut = Reply::parse(&bytes);
    assert!(!cut.complete, "the stream has no end");
    assert!(!cut.body.contains("error") && !cut.body.contains("[DONE]"));
    assert!(is_refused(address).await);
    until("it is back", || async { !is_refused(address).await }).await;
    let state = state(address).await;
    assert_eq!(
        (&state["cached_blocks"], &state["finished"], &state["open"]),
        (&0.into(), &0.into(), &0.into())
    );
    assert!(started(get(address, "/metrics").await.body) > before);
    // a new publisher counts from 0
    let mut socket = subscribe(&fleet, 0).await;
    let body = json!({"prompt": (0..64).collect::<Vec<u32>>(), "max_tokens": 1});
    let answer = post(address, "/v1/completions", &body).await.json();
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let batches = drain(&mut socket, SHORT).await;
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].0, 0);
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dying_engine_core_ends_its_streams_as_vllm_does() {
    let fleet = fleet("--speed 20").await;
    let address = fleet.sites()[0].address;
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 60_000, "stream": true});
    let (mut stream, mut bytes) = open(address, "/v1/completions", &body).await;
    let plain = tokio::spawn(async move {
        post(
            address,
            "/v1/completions",
            &json!({"prompt": [5], "max_tokens": 60_000}),
        )
        .await
    });
    until("both run", || async { state(address).await["running"] == 2 }).await;
    fault(address, json!({"kind": "die"})).await;
    stream.read_to_end(&mut bytes).await.unwrap();
    let reply = Reply::parse(&bytes);
    assert!(reply.complete, "status 200 and a normal end");
    let captured =
        Reply::parse(&std::fs::read(crate::support::data("http/death-open-plain.response.txt")).unwrap());
    let events = reply.events();
    assert_eq!(events.last().unwrap(), &captured.json());
    assert!(reply.body.ends_with("data: [DONE]\n\n"));
    let plain = plain.await.unwrap();
    assert_eq!((plain.status, plain.json()), (500, captured.json()));
    until("the port is closed", || is_refused(address)).await;
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_start_refuses_from_the_beginning() {
    let began = Instant::now();
    let fleet = fleet("--engines 2 --fault engine=1,kind=slow-start,for=500ms").await;
    let (quick, slow) = (fleet.sites()[0].address, fleet.sites()[1].address);
    assert_eq!(get(quick, "/health").await.status, 200);
    until("the port is closed", || is_refused(slow)).await;
    until("it is up", || async { !is_refused(slow).await }).await;
    assert!(
        began.elapsed() >= Duration::from_millis(480),
        "{:?}",
        began.elapsed()
    );
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_makes_no_sense_is_refused_with_its_field() {
    let fleet = fleet("--speed 1").await;
    let address = fleet.sites()[0].address;
    for (body, named) in [
        (json!({"kind": "sulk"}), "sulk"),
        (json!({"kind": "refuse", "engine": 7}), "engine"),
        (json!({"kind": "refuse", "whom": 7}), "whom"),
        (json!([1]), "object"),
    ] {
        let answer = post(address, "/sim/fault", &body).await;
        assert_eq!(answer.status, 400);
        assert!(
            answer.json()["error"]["message"]
                .as_str()
                .unwrap()
                .contains(named),
            "{answer:?}"
        );
    }
    fleet.shutdown(Duration::ZERO).await;
}
