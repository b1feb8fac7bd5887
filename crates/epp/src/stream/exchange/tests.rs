//! An exchange fed by hand: what it answers, and what it reports.

mod destinations;
mod modes;
mod outcomes;
mod refusals;

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
