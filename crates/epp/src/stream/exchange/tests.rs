use bytes::Bytes;
use lmetric_proto::{
    core::{HeaderMap, HeaderValue, Metadata},
    ext_proc::{
        BodyResponse, HeaderMutation, HttpTrailers, ProtocolConfiguration, body_mutation::Mutation,
        processing_response::Response,
    },
    mode::processing_mode::BodySendMode,
};
use prost_types::{Struct, Value, value::Kind};
use rstest::rstest;

use super::*;
use crate::{
    stream::{DESTINATION, LOAD_BALANCER, RANK},
    testing::captured,
};

const LIMIT: usize = 1000;

/// Feeds an exchange, places at once unless told not to, and keeps what happened.
pub(super) struct Run {
    pub(super) exchange: Exchange,
    pub(super) log: Vec<String>,
    pub(super) replies: Vec<ProcessingResponse>,
    pub(super) asked: Vec<Asked>,
    placement: Option<Result<Destination, Refusal>>,
}

pub(super) fn destination() -> Destination {
    Destination {
        address: "10.0.0.7:8000".parse().unwrap(),
        rank: None,
    }
}

impl Run {
    pub(super) fn new() -> Self {
        Self {
            exchange: Exchange::new(LIMIT, false),
            log: Vec::new(),
            replies: Vec::new(),
            asked: Vec::new(),
            placement: Some(Ok(destination())),
        }
    }

    /// Placements are answered by [`Run::place`] only.
    pub(super) fn slow() -> Self {
        Self {
            placement: None,
            ..Self::new()
        }
    }

    fn placing(placement: Result<Destination, Refusal>) -> Self {
        Self {
            placement: Some(placement),
            ..Self::new()
        }
    }

    pub(super) fn feed(&mut self, messages: impl IntoIterator<Item = ProcessingRequest>) -> &mut Self {
        for message in messages {
            self.act(|exchange, steps| exchange.message(message, steps));
        }
        self
    }

    pub(super) fn act(&mut self, event: impl FnOnce(&mut Exchange, &mut Vec<Step>)) {
        let mut steps = Vec::new();
        event(&mut self.exchange, &mut steps);
        for step in steps {
            match step {
                Step::Reply(reply) => {
                    self.log.push(show(&reply));
                    self.replies.push(reply);
                }
                Step::Place(asked) => {
                    self.asked.push(asked);
                    if let Some(placement) = self.placement.clone() {
                        self.place(placement);
                    }
                }
                Step::Wait(_) => self.log.push("wait".to_owned()),
                Step::Status(status) => self.log.push(format!("status {status}")),
                Step::FirstOutput => self.log.push("output".to_owned()),
                Step::ServedBy(address) => self.log.push(format!("served {address}")),
                Step::CachedTokens(tokens) => self.log.push(format!("cached {tokens}")),
                Step::Finish(outcome) => self.log.push(format!("finish {outcome:?}")),
                Step::Refused(kind) => self.log.push(format!("refused {}", kind.reason())),
                Step::Close => self.log.push("close".to_owned()),
            }
        }
    }

    pub(super) fn place(&mut self, placement: Result<Destination, Refusal>) {
        self.act(|exchange, steps| exchange.placed(placement, steps));
    }

    fn end(&mut self) -> &mut Self {
        self.act(|exchange, steps| exchange.end(End::Gateway, steps));
        self
    }
}

/// A reply in a few words: what it answers, where the destination is in it, how much of the body it holds.
fn show(reply: &ProcessingResponse) -> String {
    let named = |mutation: Option<&HeaderMutation>| {
        mutation.is_some_and(|m| {
            m.set_headers
                .iter()
                .any(|o| o.header.as_ref().is_some_and(|h| h.key == DESTINATION))
        })
    };
    let meta = if reply.dynamic_metadata.is_some() {
        "+meta"
    } else {
        ""
    };
    let body = |side: &str, body: &BodyResponse| {
        let common = body.response.clone().unwrap();
        let dest = if named(common.header_mutation.as_ref()) {
            "+dest"
        } else {
            ""
        };
        match common.body_mutation.and_then(|mutation| mutation.mutation) {
            None => format!("{side}pass{dest}{meta}"),
            Some(Mutation::StreamedResponse(piece)) => {
                let end = if piece.end_of_stream { "+end" } else { "" };
                format!("{side}back {}{end}{dest}{meta}", piece.body.len())
            }
            Some(other) => panic!("bodies are never replaced: {other:?}"),
        }
    };
    match reply.response.as_ref().unwrap() {
        Response::RequestHeaders(headers) => {
            let common = headers.response.as_ref().unwrap();
            let dest = if named(common.header_mutation.as_ref()) {
                "+dest"
            } else {
                ""
            };
            assert_eq!(common.clear_route_cache, !dest.is_empty());
            format!("headers{dest}{meta}")
        }
        Response::RequestBody(reply) => body("", reply),
        Response::RequestTrailers(_) => format!("trailers{meta}"),
        Response::ResponseHeaders(headers) => {
            assert_eq!(
                headers.response.as_ref().unwrap().header_mutation,
                None,
                "headers are never echoed"
            );
            format!("response headers{meta}")
        }
        Response::ResponseBody(reply) => body("response ", reply),
        Response::ResponseTrailers(_) => format!("response trailers{meta}"),
        Response::ImmediateResponse(reply) => format!("answer {}", reply.status.unwrap().code),
    }
}

fn message(request: Request) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(request),
        ..ProcessingRequest::default()
    }
}

fn header_map(headers: &[(&str, &str)]) -> HeaderMap {
    let headers = headers
        .iter()
        .map(|(key, value)| HeaderValue {
            key: (*key).to_owned(),
            value: String::new(),
            raw_value: Bytes::copy_from_slice(value.as_bytes()),
        })
        .collect();
    HeaderMap { headers }
}

pub(super) fn headers(end_of_stream: bool) -> ProcessingRequest {
    message(Request::RequestHeaders(HttpHeaders {
        headers: Some(header_map(&[
            (":method", "POST"),
            (":path", "/v1/completions"),
            (DESTINATION, "6.6.6.6:6"),
        ])),
        end_of_stream,
    }))
}

pub(super) fn body(bytes: &'static [u8], end_of_stream: bool) -> ProcessingRequest {
    message(Request::RequestBody(HttpBody {
        body: Bytes::from_static(bytes),
        end_of_stream,
    }))
}

pub(super) fn trailers() -> ProcessingRequest {
    message(Request::RequestTrailers(HttpTrailers::default()))
}

pub(super) fn response_headers(status: &str, end_of_stream: bool) -> ProcessingRequest {
    let content_type = ("content-type", "text/event-stream; charset=utf-8");
    let all = [(":status", status), content_type];
    message(Request::ResponseHeaders(HttpHeaders {
        headers: Some(header_map(if status.is_empty() { &all[1..] } else { &all })),
        end_of_stream,
    }))
}

pub(super) fn response_body(bytes: impl Into<Bytes>, end_of_stream: bool) -> ProcessingRequest {
    message(Request::ResponseBody(HttpBody {
        body: bytes.into(),
        end_of_stream,
    }))
}

pub(super) fn response_trailers() -> ProcessingRequest {
    message(Request::ResponseTrailers(HttpTrailers::default()))
}

/// Announces body modes, as Envoy does with the first message.
pub(super) fn announced(
    modes: (BodySendMode, BodySendMode),
    mut messages: Vec<ProcessingRequest>,
) -> Vec<ProcessingRequest> {
    if let Some(first) = messages.first_mut() {
        first.protocol_config = Some(ProtocolConfiguration {
            request_body_mode: modes.0.into(),
            response_body_mode: modes.1.into(),
            send_body_without_waiting_for_header_response: false,
        });
    }
    messages
}

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

#[rstest]
#[case::one_rank(None, vec![(DESTINATION, "10.0.0.7:8000")], vec![RANK])]
#[case::several_ranks(Some(3), vec![(DESTINATION, "10.0.0.7:8000"), (RANK, "3")], vec![])]
fn destination_and_rank_overwrite_the_clients_own(
    #[case] rank: Option<u16>,
    #[case] set: Vec<(&str, &str)>,
    #[case] removed: Vec<&str>,
    #[values(Buffered, Duplex, Streamed, Unsent)] mode: BodySendMode,
) {
    let mut run = Run::placing(Ok(Destination {
        rank,
        ..destination()
    }));
    run.feed(announced((mode, Unsent), vec![headers(false), body(b"{}", true)]));
    let carrying: Vec<_> = run
        .replies
        .iter()
        .filter_map(|reply| {
            let common = match reply.response.clone().unwrap() {
                Response::RequestHeaders(headers) => headers.response,
                Response::RequestBody(body) => body.response,
                _ => None,
            };
            let mutation = common?.header_mutation?;
            (!mutation.set_headers.is_empty()).then(|| (mutation, reply.dynamic_metadata.clone()))
        })
        .collect();
    let [(mutation, metadata)] = &carrying[..] else {
        panic!("one reply carries the destination: {carrying:?}")
    };
    let headers: Vec<_> = mutation
        .set_headers
        .iter()
        .map(|option| {
            let header = option.header.as_ref().unwrap();
            assert_eq!(option.append_action, 2, "OVERWRITE_IF_EXISTS_OR_ADD");
            assert_eq!(header.value, "");
            (
                header.key.as_str(),
                std::str::from_utf8(&header.raw_value).unwrap(),
            )
        })
        .collect();
    assert_eq!(headers, set);
    assert_eq!(mutation.remove_headers, removed);
    let Some(Kind::StructValue(balancer)) = &metadata.as_ref().unwrap().fields[LOAD_BALANCER].kind else {
        panic!("a struct")
    };
    assert_eq!(
        balancer.fields[DESTINATION].kind,
        Some(Kind::StringValue("10.0.0.7:8000".to_owned()))
    );
}

#[test]
fn a_clients_destination_is_taken_away_while_ours_is_not_known() {
    let mut run = Run::slow();
    run.feed(announced((Buffered, Unsent), vec![headers(false)]));
    let Some(Response::RequestHeaders(reply)) = &run.replies[0].response else {
        panic!("headers reply")
    };
    let mutation = reply.response.as_ref().unwrap().header_mutation.as_ref().unwrap();
    assert_eq!(mutation.remove_headers, [DESTINATION]);
}

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

fn with_metadata(
    mut message: ProcessingRequest,
    namespace: &str,
    key: &str,
    text: &str,
) -> ProcessingRequest {
    let value = Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let fields = Struct {
        fields: [(key.to_owned(), value)].into(),
    };
    message.metadata_context = Some(Metadata {
        filter_metadata: [(namespace.to_owned(), fields)].into(),
    });
    message
}

#[rstest]
#[case::with_the_headers(0)]
#[case::with_the_body(1)]
fn the_subset_hint_may_come_with_any_message(
    #[case] at: usize,
    #[values(Buffered, Duplex)] mode: BodySendMode,
) {
    let mut messages = vec![headers(false), body(b"{}", true)];
    messages[at] = with_metadata(
        messages[at].clone(),
        "envoy.lb.subset_hint",
        "x-gateway-destination-endpoint-subset",
        "10.0.0.1:80,[::1]",
    );
    let mut run = Run::new();
    run.feed(announced((mode, Unsent), messages));
    let subset = run.asked[0].subset.clone().unwrap();
    assert_eq!(
        subset.0,
        [
            ("10.0.0.1".parse().unwrap(), Some(80)),
            ("::1".parse().unwrap(), None)
        ]
    );
}

#[test]
fn an_empty_metadata_context_is_no_hint() {
    let mut first = headers(true);
    first.metadata_context = Some(Metadata::default());
    let mut run = Run::new();
    run.feed(announced((Duplex, Duplex), vec![first]));
    assert_eq!(run.asked[0].subset, None);
}

#[test]
fn who_served_is_told_by_metadata_or_attribute_once() {
    let served = with_metadata(
        response_headers("200", false),
        LOAD_BALANCER,
        "x-gateway-destination-endpoint-served",
        "10.0.0.9:8000",
    );
    let mut upstream = response_headers("200", false);
    let value = Value {
        kind: Some(Kind::StringValue("10.0.0.9:8000".to_owned())),
    };
    let fields = Struct {
        fields: [("upstream.address".to_owned(), value)].into(),
    };
    upstream.attributes = [("envoy.filters.http.ext_proc".to_owned(), fields)].into();
    for first in [served, upstream] {
        let mut run = Run::new();
        let mut again = response_body(": c", false);
        again.attributes.clone_from(&first.attributes);
        again.metadata_context.clone_from(&first.metadata_context);
        run.feed(announced((Duplex, Duplex), vec![headers(true), first, again]));
        assert_eq!(
            run.log[1..],
            [
                "served 10.0.0.9:8000",
                "response headers",
                "status 200",
                "response back 3"
            ]
        );
    }
}

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
