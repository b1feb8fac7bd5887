//! What is refused, what is cut, and how a stream is drained.

use super::*;
use BodySendMode::{Buffered, BufferedPartial, FullDuplexStreamed as Duplex, None as Unsent, Streamed};

#[rstest]
#[case(Refusal::bad_request("x"), 400)]
#[case(Refusal::unknown_model("m", &[]), 404)]
#[case(Refusal::new(RefusalKind::Overloaded, "x"), 429)]
#[case(Refusal::new(RefusalKind::NoEndpoint, "x"), 503)]
fn a_refusal_answers_the_client_and_ends_the_stream(
    #[case] refusal: Refusal,
    #[case] status: u16,
    #[values(Buffered, Duplex, Streamed, Unsent)] mode: BodySendMode,
    #[values(false, true)] end_of_stream: bool,
) {
    let reason = refusal.kind.reason();
    let mut run = Run::placing(Err(refusal));
    run.feed(announced(
        (mode, Unsent),
        vec![headers(end_of_stream), body(b"{}", true), trailers()],
    ))
    .end();
    let log: Vec<_> = run.log.iter().filter(|entry| *entry != "headers").collect();
    assert_eq!(
        log,
        [&format!("answer {status}"), &format!("refused {reason}"), "close"]
    );
}

#[test]
fn nothing_is_refused_once_response_headers_came() {
    let mut run = Run::slow();
    run.feed(announced(
        (Duplex, Duplex),
        vec![headers(true), response_headers("200", false)],
    ));
    run.place(Err(Refusal::new(RefusalKind::NoEndpoint, "late")));
    assert_eq!(run.log, ["response headers", "close"]);
}

#[test]
fn a_placement_after_response_headers_is_not_told_and_still_ends() {
    let mut run = Run::slow();
    run.feed(announced(
        (Duplex, Duplex),
        vec![headers(true), response_headers("200", true)],
    ));
    run.place(Ok(destination()));
    assert_eq!(run.log, ["response headers", "finish Done"]);
}

#[rstest]
#[case::by_what_comes(None, vec![body(&[b'x'; 999], false), body(b"yy", true)])]
#[case::by_what_is_announced(Some("1001"), vec![])]
fn a_body_over_the_limit_is_413(#[case] length: Option<&str>, #[case] bodies: Vec<ProcessingRequest>) {
    let mut first = headers(false);
    if let (Some(Request::RequestHeaders(headers)), Some(length)) = (&mut first.request, length) {
        headers.headers = Some(header_map(&[("content-length", length)]));
    }
    let mut messages = vec![first];
    messages.extend(bodies);
    let mut run = Run::new();
    run.feed(announced((Duplex, Unsent), messages));
    assert_eq!(run.log, ["answer 413", "refused too_large", "close"]);
    assert!(run.asked.is_empty());
}

#[test]
fn a_body_at_the_limit_passes() {
    let mut run = Run::new();
    run.feed(announced(
        (Duplex, Unsent),
        vec![headers(false), body(&[b'x'; LIMIT], true)],
    ));
    assert_eq!(run.log, ["headers+dest+meta", "back 1000+end"]);
}

#[test]
fn a_cut_body_is_placed_by_load() {
    let mut run = Run::new();
    run.feed(announced(
        (BufferedPartial, Unsent),
        vec![headers(false), body(b"{\"model\": ", false)],
    ));
    assert_eq!(run.asked[0].body, Bytes::new());
    let mut run = Run::new();
    run.feed(announced(
        (BufferedPartial, Unsent),
        vec![headers(false), body(b"{}", true)],
    ));
    assert_eq!(run.asked[0].body, "{}");
}

#[test]
fn an_observed_exchange_is_left_alone() {
    let mut run = Run::new();
    let messages = [headers(false), body(b"{}", true), response_headers("200", true)];
    run.feed(
        announced((Streamed, Streamed), messages.into())
            .into_iter()
            .map(|mut message| {
                message.observability_mode = true;
                message
            }),
    );
    assert_eq!(run.log, [""; 0]);
    assert!(run.asked.is_empty());
}

#[rstest]
#[case::nothing_yet(vec![], &["close"])]
#[case::body_half_here(vec![headers(false), body(b"{", false)], &["answer 503", "refused shutting_down", "close"])]
#[case::response_half_through(
    vec![headers(true), response_headers("200", false), response_body("abc", false)],
    &["headers+dest+meta", "response headers", "status 200", "response back 3", "finish Unknown", "close"]
)]
fn a_drain_ends_the_stream_without_loss_where_it_can(
    #[case] messages: Vec<ProcessingRequest>,
    #[case] expected: &[&str],
) {
    let mut run = Run::new();
    run.feed(announced((Duplex, Duplex), messages))
        .act(Exchange::drain);
    assert_eq!(run.log, expected);
}
