//! What is answered in each body mode.

use super::*;
use BodySendMode::{Buffered, BufferedPartial, FullDuplexStreamed as Duplex, None as Unsent, Streamed};

#[rstest]
#[case::duplex(Duplex, vec![headers(false), body(b"he", false), body(b"llo", true)], &["headers+dest+meta", "back 5+end"])]
#[case::duplex_end_alone(Duplex, vec![headers(false), body(b"hello", false), body(b"", true)], &["headers+dest+meta", "back 5+end"])]
#[case::duplex_empty(Duplex, vec![headers(false), body(b"", true)], &["headers+dest+meta", "back 0+end"])]
#[case::duplex_no_body(Duplex, vec![headers(true)], &["headers+dest+meta"])]
#[case::duplex_trailers(Duplex, vec![headers(false), body(b"hello", false), trailers()], &["headers+dest+meta", "back 5", "trailers"])]
#[case::duplex_trailers_alone(Duplex, vec![headers(false), trailers()], &["headers+dest+meta", "trailers"])]
#[case::duplex_end_twice(Duplex, vec![headers(false), body(b"hello", true), body(b"", true), body(b"hello", true)], &["headers+dest+meta", "back 5+end"])]
#[case::duplex_headers_twice(Duplex, vec![headers(true), headers(true)], &["headers+dest+meta"])]
#[case::buffered(Buffered, vec![headers(false), body(b"hello", true)], &["headers", "pass+dest+meta"])]
#[case::buffered_end_alone(Buffered, vec![headers(false), body(b"hello", false), body(b"", true)], &["headers", "pass+dest+meta", "pass"])]
#[case::buffered_no_body(Buffered, vec![headers(true)], &["headers+dest+meta"])]
#[case::buffered_trailers(Buffered, vec![headers(false), body(b"hello", false), trailers()], &["headers", "pass+dest+meta", "trailers"])]
#[case::buffered_trailers_alone(Buffered, vec![headers(false), trailers()], &["headers", "trailers+meta"])]
#[case::buffered_without_headers(Buffered, vec![body(b"hello", true)], &["pass+dest+meta"])]
#[case::partial(BufferedPartial, vec![headers(false), body(b"hello", false)], &["headers", "pass+dest+meta"])]
#[case::streamed(Streamed, vec![headers(false), body(b"he", false), body(b"llo", true)], &["headers+dest+meta", "pass", "pass"])]
#[case::streamed_trailers(Streamed, vec![headers(false), body(b"he", false), trailers()], &["headers+dest+meta", "pass", "trailers"])]
#[case::unsent(Unsent, vec![headers(false)], &["headers+dest+meta"])]
#[case::unsent_trailers(Unsent, vec![headers(false), trailers()], &["headers+dest+meta", "trailers"])]
fn a_request_is_answered_in_the_announced_mode(
    #[case] mode: BodySendMode,
    #[case] messages: Vec<ProcessingRequest>,
    #[case] expected: &[&str],
    #[values(false, true)] slow: bool,
) {
    let mut run = if slow { Run::slow() } else { Run::new() };
    run.feed(announced((mode, Unsent), messages));
    if slow {
        run.place(Ok(destination()));
    }
    assert_eq!(run.log, expected);
    assert_eq!(run.asked.len(), 1, "placed once");
}

#[rstest]
#[case::body_unprompted(vec![headers(false), body(b"he", false), body(b"llo", true)], &["wait", "headers+dest+meta", "back 5+end"])]
#[case::no_body(vec![headers(true)], &["headers+dest+meta"])]
#[case::trailers(vec![headers(false), trailers()], &["wait", "headers+dest+meta", "trailers"])]
fn modes_are_inferred_where_none_is_announced(
    #[case] messages: Vec<ProcessingRequest>,
    #[case] expected: &[&str],
) {
    let mut run = Run::new();
    run.feed(messages);
    assert_eq!(run.log, expected);
    // too late to matter
    run.act(Exchange::patience_over);
    assert_eq!(run.log, expected);
}

#[test]
fn a_gateway_that_waits_for_its_headers_is_answered_with_a_placement_by_load() {
    let mut run = Run::new();
    run.feed([headers(false)]).act(Exchange::patience_over);
    run.feed([
        body(b"hello", false),
        body(b"", true),
        response_headers("200", false),
        response_body("x", true),
    ]);
    let expected = [
        "wait",
        "headers+dest+meta",
        "pass",
        "pass",
        "response headers",
        "status 200",
        "response pass",
        "finish Done",
    ];
    assert_eq!(run.log, expected);
}

#[rstest]
#[case::duplex_echoes(Duplex, &["response headers", "status 200", "response back 3", "response back 0+end", "finish Done"])]
#[case::streamed_passes(Streamed, &["response headers", "status 200", "response pass", "response pass", "finish Done"])]
#[case::buffered_passes(Buffered, &["response headers", "status 200", "response pass", "response pass", "finish Done"])]
fn a_response_is_let_pass_in_the_announced_mode(#[case] mode: BodySendMode, #[case] expected: &[&str]) {
    let mut run = Run::new();
    run.feed(announced((Duplex, mode), vec![headers(true)]))
        .log
        .clear();
    run.feed([
        response_headers("200", false),
        response_body(": c", false),
        response_body("", true),
    ]);
    assert_eq!(run.log, expected);
}

#[test]
fn response_trailers_are_answered_and_end_the_response() {
    let mut run = Run::new();
    run.feed(announced((Duplex, Duplex), vec![headers(true)]))
        .log
        .clear();
    run.feed([
        response_headers("200", false),
        response_body("abc", false),
        response_trailers(),
    ]);
    let expected = [
        "response headers",
        "status 200",
        "response back 3",
        "response trailers",
        "finish Done",
    ];
    assert_eq!(run.log, expected);
}

#[test]
fn an_answer_that_goes_on_tells_its_status_before_its_end() {
    let mut run = Run::new();
    run.feed(announced(
        (Buffered, Unsent),
        vec![headers(true), response_headers("200", false)],
    ));
    assert_eq!(run.log, ["headers+dest+meta", "response headers", "status 200"]);
    run.end();
    assert_eq!(run.log[3..], ["finish Done", "close"]);
}

#[test]
fn the_end_of_a_response_may_be_told_twice() {
    let mut run = Run::new();
    run.feed(announced(
        (Duplex, Duplex),
        vec![headers(true), response_headers("200", false)],
    ))
    .log
    .clear();
    run.feed([
        response_body("abc", true),
        response_body("", true),
        response_body("abc", true),
    ])
    .end();
    assert_eq!(run.log, ["response back 3+end", "finish Done", "close"]);
}

#[test]
fn an_empty_piece_that_ends_nothing_is_not_echoed() {
    let mut run = Run::new();
    run.feed(announced(
        (Duplex, Duplex),
        vec![headers(true), response_headers("200", false)],
    ))
    .log
    .clear();
    run.feed([response_body("", false)]);
    assert_eq!(run.log, [""; 0]);
}

#[test]
fn bodies_go_back_in_pieces_that_share_their_memory() {
    let sent = Bytes::from(vec![b' '; 150_000]);
    let mut run = Run {
        exchange: Exchange::new(1 << 20, false),
        ..Run::new()
    };
    let whole = message(Request::RequestBody(HttpBody {
        body: sent.clone(),
        end_of_stream: true,
    }));
    run.feed(announced((Duplex, Duplex), vec![headers(false), whole]));
    assert_eq!(
        run.log,
        ["headers+dest+meta", "back 62000", "back 62000", "back 26000+end"]
    );
    let Some(Response::RequestBody(BodyResponse {
        response: Some(common),
    })) = &run.replies[2].response
    else {
        panic!("a body reply")
    };
    let Some(Mutation::StreamedResponse(piece)) =
        common.body_mutation.as_ref().and_then(|m| m.mutation.as_ref())
    else {
        panic!("a piece")
    };
    assert_eq!(piece.body.as_ptr(), sent[62_000..].as_ptr());
}
