//! How a request ended, and what its answer told.

use super::*;
use BodySendMode::{Buffered, FullDuplexStreamed as Duplex, None as Unsent};

#[rstest]
#[case::done(Duplex, vec![response_headers("200", false), response_body("", true)], "Done")]
#[case::done_without_body(Duplex, vec![response_headers("204", true)], "Done")]
#[case::client_error(Duplex, vec![response_headers("404", true)], "Done")]
#[case::engine_error(Duplex, vec![response_headers("500", true)], "ServerError")]
#[case::engine_error_with_body(Duplex, vec![response_headers("503", false), response_body("x", true)], "ServerError")]
#[case::no_status(Duplex, vec![response_headers("", false), response_body("x", true)], "Unreachable")]
#[case::client_left_in_the_body(Duplex, vec![response_headers("200", false), response_body("x", false)], "ClientAbort")]
#[case::client_left_before_headers(Duplex, vec![], "ClientAbort")]
#[case::light_done(Unsent, vec![response_headers("200", false)], "Done")]
#[case::light_engine_error(Unsent, vec![response_headers("502", false)], "ServerError")]
#[case::light_no_status(Unsent, vec![response_headers("", false)], "Unreachable")]
#[case::no_response_phase(Unsent, vec![], "Unknown")]
fn the_outcome_is_what_was_seen_of_the_response(
    #[case] mode: BodySendMode,
    #[case] response: Vec<ProcessingRequest>,
    #[case] outcome: &str,
) {
    let mut run = Run::new();
    run.feed(announced(
        (Buffered, mode),
        vec![headers(false), body(b"{}", true)],
    ));
    run.feed(response).end().end();
    let finished: Vec<_> = run
        .log
        .iter()
        .filter(|entry| entry.starts_with("finish"))
        .collect();
    assert_eq!(finished, [&format!("finish {outcome}")]);
}

#[test]
fn where_headers_are_shown_an_end_before_them_is_the_clients() {
    let mut run = Run {
        exchange: Exchange::new(LIMIT, true),
        ..Run::new()
    };
    run.feed(announced(
        (Buffered, Unsent),
        vec![headers(false), body(b"{}", true)],
    ))
    .end();
    assert!(run.log.contains(&"finish ClientAbort".to_owned()));
}

#[test]
fn a_client_that_leaves_while_its_request_is_placed_gives_the_placement_back() {
    let mut run = Run::slow();
    run.feed(announced((Duplex, Duplex), vec![headers(true)])).end();
    run.place(Ok(destination()));
    assert_eq!(run.log, ["close", "finish ClientAbort"]);
}

#[rstest]
#[case("chat-stream-usage", Some("cached 112"), 6)]
#[case("chat-stream", None, 7)]
fn output_and_cached_tokens_of_a_stream_are_reported(
    #[case] name: &str,
    #[case] cached: Option<&str>,
    #[case] tokens: u64,
) {
    let answer = captured(name);
    let mut run = Run::new();
    run.feed(announced(
        (Duplex, Duplex),
        vec![headers(true), response_headers("200", false)],
    ))
    .log
    .clear();
    for piece in answer.body.chunks(100) {
        run.feed([response_body(Bytes::copy_from_slice(piece), false)]);
    }
    run.feed([response_body("", true)]);
    let seen: Vec<_> = run
        .log
        .iter()
        .filter(|entry| !entry.starts_with("response"))
        .map(String::as_str)
        .collect();
    let expected: Vec<_> = ["output"]
        .into_iter()
        .chain(cached)
        .chain(["finish Done"])
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(run.exchange.answered().tokens(), Some(tokens));
}

#[test]
fn an_error_is_no_output() {
    let mut run = Run::new();
    run.feed(announced(
        (Duplex, Duplex),
        vec![headers(true), response_headers("400", false)],
    ));
    run.feed([response_body("{\"error\":{}}", true)]);
    assert!(!run.log.contains(&"output".to_owned()));
}
