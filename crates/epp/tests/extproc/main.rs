//! The ext-proc server over real connections: a gateway's side of the protocol, plain and over TLS.

mod gateway;

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use bytes::Bytes;
use gateway::{
    Gateway, Picks, duplex, light, request_body, request_headers, response_body, response_headers,
};
use lmetric_api::Tls;
use lmetric_epp::{
    refusal::RefusalKind,
    server::Drain,
    stream::{DESTINATION, RANK},
};
use lmetric_proto::ext_proc::processing_response::Response;
use lmetric_scheduler::Outcome;
use rstest::rstest;
use tonic::Code;
use tonic_health::ServingStatus;

const CHAT: &[u8] = br#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;

#[rstest]
#[case::plain(Tls::Off)]
#[case::tls(Tls::SelfSigned)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_megabytes_come_back_byte_for_byte(#[case] tls: Tls) {
    let gateway = Gateway::start(&tls, Picks::default()).await;
    let mut exchange = gateway.exchange().await;
    let text = "0123456789 abcdefg ".repeat(600_000);
    let sent = Bytes::from(format!(r#"{{"prompt": "{}"}}"#, &text[..10 << 20]));
    exchange.send(duplex(request_headers(&[], false))).await;
    for start in (0..sent.len()).step_by(1 << 16) {
        let piece = sent.slice(start..sent.len().min(start + (1 << 16)));
        exchange.send(request_body(piece, false)).await;
    }
    exchange.send(request_body(Bytes::new(), true)).await;
    let headers = exchange.receive().await;
    assert_eq!(
        gateway::header(&headers, DESTINATION).as_deref(),
        Some("10.0.0.1:8000")
    );
    let mut back = Vec::with_capacity(sent.len());
    loop {
        let (piece, end) = gateway::piece(&exchange.receive().await);
        assert!(piece.len() <= 62_000);
        back.extend_from_slice(&piece);
        if end {
            break;
        }
    }
    assert!(back == sent, "the body came back changed");
    exchange.send(response_headers(200, false)).await;
    exchange.receive().await;
    exchange.send(response_body(": keep-alive\n\n")).await;
    assert_eq!(gateway::piece(&exchange.receive().await).0, ": keep-alive\n\n");
    assert_eq!(gateway.picks.outputs.load(SeqCst), 0);
    exchange
        .send(response_body("data: {\"choices\":[{\"delta\":{}}]}\n\n"))
        .await;
    exchange.receive().await;
    assert_eq!(gateway.picks.outputs.load(SeqCst), 1);
    exchange
        .send(gateway::last(response_body("data: [DONE]\n\n")))
        .await;
    exchange.receive().await;
    assert_eq!(gateway.picks.released().await, [Outcome::Done]);
}

#[tokio::test]
async fn plaintext_and_tls_are_served_side_by_side_and_drained_together() {
    let drain = Drain {
        linger: Duration::from_millis(50),
        limit: Duration::from_millis(900),
    };
    let mut gateway = Gateway::start_on_both(Picks::default(), drain).await;
    let secure = gateway.secure_channel.clone().expect("a second port");
    let mut exchanges = Vec::new();
    for channel in [&gateway.channel, &secure] {
        let mut exchange = Gateway::exchange_on(channel).await;
        exchange.send(light(request_headers(&[], true))).await;
        let reply = exchange.receive().await;
        assert_eq!(
            gateway::header(&reply, DESTINATION).as_deref(),
            Some("10.0.0.1:8000")
        );
        exchanges.push(exchange);
    }
    gateway.stop.cancel();
    for mut exchange in exchanges {
        assert_eq!(exchange.end().await, Code::Ok);
    }
    gateway.ended().await;
}

#[rstest]
#[case::rank(Some(2), Some("2"))]
#[case::no_rank(None, None)]
#[tokio::test]
async fn a_buffered_body_of_twenty_megabytes_is_answered_once(
    #[case] rank: Option<u16>,
    #[case] expected: Option<&str>,
) {
    let picks = Picks::ranked(rank);
    let gateway = Gateway::start(&Tls::Off, picks).await;
    let mut exchange = gateway.exchange().await;
    exchange
        .send(light(request_headers(
            &[(DESTINATION, "6.6.6.6:6"), (RANK, "9")],
            false,
        )))
        .await;
    let first = exchange.receive().await;
    assert_eq!(gateway::removed(&first), [DESTINATION]);
    let text = "x".repeat(20 << 20);
    exchange
        .send(request_body(format!(r#"{{"prompt":"{text}"}}"#), true))
        .await;
    let reply = exchange.receive().await;
    assert!(matches!(reply.response, Some(Response::RequestBody(_))));
    assert_eq!(
        gateway::header(&reply, DESTINATION).as_deref(),
        Some("10.0.0.1:8000")
    );
    assert_eq!(gateway::header(&reply, RANK).as_deref(), expected);
    assert_eq!(gateway::removed(&reply).contains(&RANK), expected.is_none());
    exchange.send(response_headers(200, false)).await;
    exchange.receive().await;
    assert_eq!(gateway.picks.open(), 1, "the request lasts as long as its stream");
    exchange.half_close();
    assert_eq!(exchange.end().await, Code::Ok);
    assert_eq!(gateway.picks.released().await, [Outcome::Done]);
}

#[rstest]
#[case::by_a_byte(gateway::BODY_LIMIT + 1)]
#[case::by_more_than_a_message_may_hold(gateway::BODY_LIMIT + (17 << 20))]
#[tokio::test]
async fn a_body_over_the_limit_gets_413_in_one_message_too(#[case] length: usize) {
    let gateway = Gateway::start(&Tls::Off, Picks::default()).await;
    let mut exchange = gateway.exchange().await;
    exchange.send(light(request_headers(&[], false))).await;
    exchange.receive().await;
    exchange.send(request_body(vec![b' '; length], true)).await;
    assert_eq!(gateway::status(&exchange.receive().await), 413);
    assert_eq!(exchange.end().await, Code::Ok);
    assert_eq!(
        gateway.stats.refused[RefusalKind::TooLarge as usize].load(SeqCst),
        1
    );
}

#[tokio::test]
async fn bad_json_gets_400_in_openais_shape() {
    let gateway = Gateway::start(&Tls::Off, Picks::default()).await;
    let mut exchange = gateway.exchange().await;
    exchange.send(duplex(request_headers(&[], false))).await;
    exchange.send(request_body("{\"model\": oops}", true)).await;
    let reply = exchange.receive().await;
    let Some(Response::ImmediateResponse(answer)) = &reply.response else {
        panic!("an answer of our own: {reply:?}")
    };
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["error"]["code"], 400);
    assert_eq!(body["error"]["type"], "BadRequestError");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("line 1 column 11"), "{message}");
    assert_eq!(
        gateway::header(&reply, "content-type").as_deref(),
        Some("application/json")
    );
}

#[tokio::test]
async fn a_gateway_that_closes_its_side_first_is_still_answered() {
    let picks = Picks::slow(Duration::from_millis(50));
    let gateway = Gateway::start(&Tls::Off, picks).await;
    let mut exchange = gateway.exchange().await;
    exchange.send(request_headers(&[], false)).await;
    exchange.send(request_body(CHAT, true)).await;
    exchange.half_close();
    assert_eq!(
        gateway::header(&exchange.receive().await, DESTINATION).as_deref(),
        Some("10.0.0.1:8000")
    );
    assert_eq!(
        gateway::piece(&exchange.receive().await),
        (Bytes::from_static(CHAT), true)
    );
    assert_eq!(exchange.end().await, Code::Ok);
    assert_eq!(gateway.picks.released().await, [Outcome::Unknown]);
}

#[tokio::test]
async fn headers_that_wait_for_an_answer_get_one_without_an_announcement() {
    let gateway = Gateway::start(&Tls::Off, Picks::default()).await;
    let mut exchange = gateway.exchange().await;
    exchange.send(request_headers(&[], false)).await;
    let reply = exchange.receive().await;
    assert_eq!(
        gateway::header(&reply, DESTINATION).as_deref(),
        Some("10.0.0.1:8000")
    );
    exchange.send(request_body(CHAT, true)).await;
    assert!(matches!(
        exchange.receive().await.response,
        Some(Response::RequestBody(_))
    ));
}

#[rstest]
#[case::while_placing(Duration::from_mins(1))]
#[case::after_the_pick(Duration::ZERO)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_streams_reset_at_once_leave_nothing_behind(#[case] delay: Duration) {
    let picks = Picks::slow(delay);
    let gateway = Gateway::start(&Tls::Off, picks).await;
    let mut exchanges = Vec::new();
    for _ in 0..200 {
        let mut exchange = gateway.exchange().await;
        exchange.send(duplex(request_headers(&[], true))).await;
        exchanges.push(exchange);
    }
    let is_picked = delay.is_zero();
    if is_picked {
        for exchange in &mut exchanges {
            exchange.receive().await;
        }
        assert_eq!(gateway.picks.open(), 200);
    } else {
        gateway.wait_for(|gateway| gateway.stats.open() == 200).await;
    }
    drop(exchanges);
    gateway.wait_for(|gateway| gateway.stats.open() == 0).await;
    assert_eq!(gateway.picks.open(), 0);
    let released = gateway.picks.released().await;
    let expected = if is_picked { 200 } else { 0 };
    assert_eq!(released, vec![Outcome::ClientAbort; expected]);
}

#[tokio::test]
async fn a_pick_that_hangs_is_503() {
    let picks = Picks::hanging(Duration::from_millis(50));
    let gateway = Gateway::start(&Tls::Off, picks).await;
    let mut exchange = gateway.exchange().await;
    exchange.send(duplex(request_headers(&[], true))).await;
    assert_eq!(gateway::status(&exchange.receive().await), 503);
}

#[rstest]
#[case::plain(Tls::Off)]
#[case::tls(Tls::SelfSigned)]
#[tokio::test]
async fn health_answers_five_names_on_both_ports(#[case] tls: Tls) {
    let gateway = Gateway::start(&tls, Picks::default()).await;
    let names = [
        "",
        "readiness",
        "envoy.service.ext_proc.v3.ExternalProcessor",
        "inference-extension",
    ];
    for ready in [false, true, false] {
        gateway.health.set_ready(ready).await;
        let status = if ready {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        } as i32;
        for channel in [gateway.channel.clone(), gateway.health_channel.clone()] {
            for name in names {
                assert_eq!(gateway::health(channel.clone(), name).await, Ok(status), "{name}");
            }
            let alive = gateway::health(channel.clone(), "liveness").await;
            assert_eq!(alive, Ok(ServingStatus::Serving as i32));
            let unknown = gateway::health(channel, "nobody").await;
            assert_eq!(unknown, Err(Code::NotFound));
        }
    }
}

#[tokio::test]
async fn a_stop_lets_streams_end_and_then_ends_them_with_ok() {
    let mut gateway = Gateway::start(&Tls::Off, Picks::default()).await;
    gateway.health.set_ready(true).await;
    let mut ending = gateway.exchange().await;
    let mut staying = gateway.exchange().await;
    for exchange in [&mut ending, &mut staying] {
        exchange.send(duplex(request_headers(&[], true))).await;
        exchange.receive().await;
        exchange.send(response_headers(200, false)).await;
        exchange.receive().await;
    }
    gateway.stop.cancel();
    gateway.wait_until_not_ready().await;
    // while it lingers, new requests are still placed
    let mut late = gateway.exchange().await;
    late.send(duplex(request_headers(&[], true))).await;
    late.receive().await;
    drop(late);
    ending
        .send(gateway::last(response_body("data: [DONE]\n\n")))
        .await;
    ending.receive().await;
    ending.half_close();
    assert_eq!(ending.end().await, Code::Ok);
    assert_eq!(staying.end().await, Code::Ok);
    gateway.ended().await;
    let mut released = gateway.picks.released().await;
    released.sort_by_key(|outcome| *outcome as u8);
    assert_eq!(released, [Outcome::Done, Outcome::ClientAbort, Outcome::Unknown]);
}

#[tokio::test]
async fn a_stop_with_nothing_open_ends_at_once() {
    let drain = Drain {
        linger: Duration::ZERO,
        limit: Duration::from_mins(1),
    };
    let mut gateway = Gateway::start_with(&Tls::Off, Picks::default(), drain).await;
    let mut exchange = gateway.exchange().await;
    exchange.send(duplex(request_headers(&[], true))).await;
    exchange.receive().await;
    drop(exchange);
    gateway.stop.cancel();
    gateway.ended().await;
}
