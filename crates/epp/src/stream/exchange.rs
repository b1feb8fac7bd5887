//! The state machine of one HTTP exchange: messages of the gateway in, [`Step`]s out. Pure.
//!
//! Request half: collect (where the body is sent), place, answer. Response half: let pass, watch, account.
//! Whatever arrives in whatever order: every message that the gateway waits for is answered, nothing is
//! answered twice, and a placement is finished exactly once.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use lmetric_proto::ext_proc::{
    HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse, processing_request::Request,
};
use lmetric_scheduler::Outcome;

use super::{
    body::Collector,
    context::{self, BodyMode},
    replies::{self, Destination, Side},
    watch::Watcher,
};
use crate::{
    guard::Answer,
    refusal::{Refusal, RefusalKind},
    request::{Asked, Head, text},
};

/// How long a body is waited for when the gateway does not say whether it sends one before its headers are
/// answered. Shorter than Envoy's default message timeout of 200 ms.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// What is to be done next, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Send this to the gateway.
    Reply(ProcessingResponse),
    /// Place the request, then call [`Exchange::placed`].
    Place(Asked),
    /// Call [`Exchange::patience_over`] after this time.
    Wait(Duration),
    /// The engine answered with this status, and the answer goes on.
    Status(u16),
    /// The first generated output passed by.
    FirstOutput,
    /// The gateway says who served the request.
    ServedBy(SocketAddr),
    /// The engine says how many prompt tokens it found in its cache.
    CachedTokens(u64),
    /// The placed request is over.
    Finish(Outcome),
    /// The client was answered in an engine's place.
    Refused(RefusalKind),
    /// End the stream with OK.
    Close,
}

/// How the gateway's side of the stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By the gateway, one way or another: it ends a stream alike for a finished exchange and a client that left.
    Gateway,
    /// By the picker, which is about to exit.
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPhase {
    /// No message yet.
    New,
    /// The body is on its way.
    Collecting,
    /// Waiting for the placement.
    Placing,
    /// Answered, or no longer to be answered.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponsePhase {
    /// Nothing yet.
    Awaited,
    /// The headers came; `body_seen` once some of the body did.
    Begun { body_seen: bool },
    /// The end came.
    Over,
}

/// What the gateway waits for while the request is being placed.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    headers: bool,
    /// Body messages to let pass.
    bodies: u32,
    /// The collected body is to be sent back, this being its end or not.
    body_back: Option<bool>,
    trailers: bool,
}

/// One HTTP exchange.
#[derive(Debug)]
pub(super) struct Exchange {
    body_limit: usize,
    /// Response headers are expected even though the response's body is not.
    headers_expected: bool,
    announced: Option<(BodyMode, BodyMode)>,
    /// Mode of the request body where none was announced.
    inferred: Option<BodyMode>,
    asked: Asked,
    body: Collector,
    owed: Owed,
    request: RequestPhase,
    response: ResponsePhase,
    status: Option<u16>,
    body_seen: bool,
    watcher: Option<Watcher>,
    placed: bool,
    finished: bool,
    output_reported: bool,
    served_reported: bool,
    closed: bool,
}

impl Exchange {
    /// A new one. `body_limit` in bytes; `headers_expected` where this gateway is known to show response headers.
    pub(super) fn new(body_limit: usize, headers_expected: bool) -> Self {
        Self {
            body_limit,
            headers_expected,
            announced: None,
            inferred: None,
            asked: Asked::default(),
            body: Collector::default(),
            owed: Owed::default(),
            request: RequestPhase::New,
            response: ResponsePhase::Awaited,
            status: None,
            body_seen: false,
            watcher: None,
            placed: false,
            finished: false,
            output_reported: false,
            served_reported: false,
            closed: false,
        }
    }

    /// Whether a placement is being waited for.
    pub(super) fn is_placing(&self) -> bool {
        self.request == RequestPhase::Placing
    }

    /// What was seen of the answer so far.
    pub(super) fn answered(&self) -> Answer {
        let findings = self.watcher.as_ref().map(Watcher::findings).unwrap_or_default();
        Answer {
            status: self.status,
            body_seen: self.body_seen,
            output_tokens: findings.output_tokens,
            output_events: findings.output_events,
        }
    }

    /// Whether response headers came.
    pub(super) fn saw_response_headers(&self) -> bool {
        self.response != ResponsePhase::Awaited
    }

    /// A message from the gateway.
    pub(super) fn message(&mut self, message: ProcessingRequest, steps: &mut Vec<Step>) {
        // an observed exchange waits for no answer: there is nothing to decide
        if self.closed || message.observability_mode {
            return;
        }
        if let Some(config) = &message.protocol_config {
            self.announced.get_or_insert(context::modes(config));
        }
        if let Some(subset) = context::subset_hint(&message) {
            self.asked.subset = Some(subset);
        }
        let served = context::served_by(&message);
        match message.request {
            None => {}
            Some(Request::RequestHeaders(headers)) => self.request_headers(&headers, steps),
            Some(Request::RequestBody(body)) => self.request_body(body, steps),
            Some(Request::RequestTrailers(_)) => self.request_trailers(steps),
            Some(Request::ResponseHeaders(headers)) => {
                self.note_served(served, steps);
                self.response_headers(&headers, steps);
            }
            Some(Request::ResponseBody(body)) => {
                self.note_served(served, steps);
                self.response_body(&body, steps);
            }
            Some(Request::ResponseTrailers(_)) => {
                self.note_served(served, steps);
                steps.push(Step::Reply(replies::response_trailers()));
                self.response_over(steps);
            }
        }
    }

    fn request_mode(&self) -> Option<BodyMode> {
        self.announced.map(|(request, _)| request).or(self.inferred)
    }

    /// Where nothing was announced, a gateway treats both bodies alike.
    fn response_mode(&self) -> BodyMode {
        self.announced
            .map(|(_, response)| response)
            .or(self.inferred)
            .unwrap_or(BodyMode::Streamed)
    }

    fn request_headers(&mut self, headers: &HttpHeaders, steps: &mut Vec<Step>) {
        if self.request != RequestPhase::New {
            return;
        }
        self.asked.head = Head::read(headers.headers.as_ref());
        self.owed.headers = true;
        self.request = RequestPhase::Collecting;
        let mode = self.request_mode();
        let sees_no_body = matches!(mode, Some(BodyMode::None | BodyMode::Streamed));
        if headers.end_of_stream || sees_no_body {
            return self.place(Bytes::new(), steps);
        }
        if self.asked.head.content_length > Some(self.body_limit as u64) {
            return self.refuse(&Refusal::too_large(self.body_limit), steps);
        }
        match mode {
            Some(BodyMode::Buffered | BodyMode::BufferedPartial) => {
                self.owed.headers = false;
                steps.push(Step::Reply(replies::request_headers_without_destination()));
            }
            None => steps.push(Step::Wait(PATIENCE)),
            Some(_) => {}
        }
    }

    /// No body came before an answer to the headers: the gateway waits for one, and may never send a body.
    pub(super) fn patience_over(&mut self, steps: &mut Vec<Step>) {
        let waiting = self.request == RequestPhase::Collecting && self.request_mode().is_none();
        if waiting && !self.closed {
            self.inferred = Some(BodyMode::Streamed);
            self.place(Bytes::new(), steps);
        }
    }

    fn request_body(&mut self, message: HttpBody, steps: &mut Vec<Step>) {
        let HttpBody { body, end_of_stream } = message;
        let unannounced = match self.request {
            // unprompted, so nobody waits for an answer to the headers
            RequestPhase::Collecting => BodyMode::FullDuplex,
            _ => BodyMode::Buffered,
        };
        let mode = self
            .request_mode()
            .unwrap_or_else(|| *self.inferred.insert(unannounced));
        match self.request {
            // the end of a body may be told twice
            RequestPhase::Placing | RequestPhase::Over if mode == BodyMode::FullDuplex => return,
            RequestPhase::Placing => {
                self.owed.bodies += 1;
                return;
            }
            RequestPhase::Over => {
                steps.push(Step::Reply(replies::pass(Side::Request, None)));
                return;
            }
            RequestPhase::New | RequestPhase::Collecting => self.request = RequestPhase::Collecting,
        }
        let expected = self.asked.head.content_length;
        if self.body.push(body, expected, self.body_limit).is_err() {
            return self.refuse(&Refusal::too_large(self.body_limit), steps);
        }
        if mode == BodyMode::FullDuplex {
            if end_of_stream {
                self.owed.body_back = Some(true);
                let body = self.body.take();
                self.place(body, steps);
            }
            return;
        }
        self.owed.bodies += 1;
        let is_whole = mode == BodyMode::Buffered || end_of_stream;
        let body = self.body.take();
        self.place(if is_whole { body } else { Bytes::new() }, steps);
    }

    /// Trailers end the body.
    fn request_trailers(&mut self, steps: &mut Vec<Step>) {
        match self.request {
            RequestPhase::Over => steps.push(Step::Reply(replies::request_trailers(None))),
            RequestPhase::Placing => self.owed.trailers = true,
            RequestPhase::New | RequestPhase::Collecting => {
                if self.request_mode().is_none() {
                    self.inferred = Some(BodyMode::FullDuplex);
                }
                self.owed.trailers = true;
                if self.request_mode() == Some(BodyMode::FullDuplex) {
                    self.owed.body_back = Some(false);
                }
                let body = self.body.take();
                self.place(body, steps);
            }
        }
    }

    fn place(&mut self, body: Bytes, steps: &mut Vec<Step>) {
        self.request = RequestPhase::Placing;
        self.asked.body = body;
        steps.push(Step::Place(self.asked.clone()));
    }

    /// The placement is known.
    pub(super) fn placed(&mut self, placement: Result<Destination, Refusal>, steps: &mut Vec<Step>) {
        let destination = match placement {
            Ok(destination) => destination,
            Err(refusal) => {
                if self.is_placing() {
                    self.refuse(&refusal, steps);
                }
                return;
            }
        };
        self.placed = true;
        if self.closed {
            return self.finish(Outcome::ClientAbort, steps);
        }
        let is_late = self.saw_response_headers();
        self.request = RequestPhase::Over;
        if !is_late {
            self.answer(&destination, steps);
        }
        self.asked.body = Bytes::new();
        if self.response == ResponsePhase::Over {
            self.finish(self.outcome(), steps);
        }
    }

    /// Everything that the gateway waits for; the first answer carries the destination.
    fn answer(&mut self, destination: &Destination, steps: &mut Vec<Step>) {
        let Owed {
            headers,
            bodies,
            body_back,
            trailers,
        } = std::mem::take(&mut self.owed);
        let mut carried = Some(destination);
        let mut reply = |message| steps.push(Step::Reply(message));
        if headers {
            reply(replies::request_headers(carried.take()));
        }
        for _ in 0..bodies {
            reply(replies::pass(Side::Request, carried.take()));
        }
        if let Some(is_end) = body_back {
            replies::send_back(Side::Request, &self.asked.body, is_end).for_each(&mut reply);
        }
        if trailers {
            reply(replies::request_trailers(carried.take()));
        }
    }

    /// Answers the client, unless an engine already did.
    fn refuse(&mut self, refusal: &Refusal, steps: &mut Vec<Step>) {
        if !self.saw_response_headers() {
            steps.push(Step::Reply(replies::refuse(refusal)));
            steps.push(Step::Refused(refusal.kind));
        }
        self.close(steps);
    }

    fn close(&mut self, steps: &mut Vec<Step>) {
        self.request = RequestPhase::Over;
        self.closed = true;
        steps.push(Step::Close);
    }

    fn note_served(&mut self, served: Option<SocketAddr>, steps: &mut Vec<Step>) {
        if let Some(address) = served
            && self.placed
            && !self.finished
            && !std::mem::replace(&mut self.served_reported, true)
        {
            steps.push(Step::ServedBy(address));
        }
    }

    fn response_headers(&mut self, headers: &HttpHeaders, steps: &mut Vec<Step>) {
        if self.request == RequestPhase::Collecting {
            self.request = RequestPhase::Over;
        }
        steps.push(Step::Reply(replies::response_headers()));
        if self.response != ResponsePhase::Awaited {
            return;
        }
        self.response = ResponsePhase::Begun { body_seen: false };
        let header = |name: &str| {
            let all = headers.headers.iter().flat_map(|map| &map.headers);
            all.into_iter()
                .find(|header| header.key.eq_ignore_ascii_case(name))
                .map(text)
        };
        self.status = header(":status").and_then(|status| status.trim().parse().ok());
        if self.status.is_none_or(|status| status < 300) {
            let kind = header("content-type").unwrap_or_default();
            let encoding = header("content-encoding");
            self.watcher = Some(Watcher::new(&kind, encoding.as_deref()));
        }
        if headers.end_of_stream {
            self.response_over(steps);
        } else if self.status.is_some_and(|status| status >= 500) {
            self.finish(Outcome::ServerError, steps);
        } else if let Some(status) = self.status
            && self.placed
        {
            steps.push(Step::Status(status));
        }
    }

    fn response_body(&mut self, message: &HttpBody, steps: &mut Vec<Step>) {
        let HttpBody { body, end_of_stream } = message;
        if self.response_mode() != BodyMode::FullDuplex {
            steps.push(Step::Reply(replies::pass(Side::Response, None)));
        } else if self.response == ResponsePhase::Over {
            return;
        } else {
            let pieces = replies::send_back(Side::Response, body, *end_of_stream);
            steps.extend(pieces.map(Step::Reply));
        }
        if self.response == ResponsePhase::Over {
            return;
        }
        self.response = ResponsePhase::Begun { body_seen: true };
        self.body_seen = true;
        if let Some(watcher) = &mut self.watcher {
            watcher.push(body);
            let is_first = watcher.findings().output && !self.output_reported;
            if is_first && self.placed && !self.finished {
                self.output_reported = true;
                steps.push(Step::FirstOutput);
            }
        }
        if *end_of_stream {
            self.response_over(steps);
        }
    }

    fn response_over(&mut self, steps: &mut Vec<Step>) {
        self.response = ResponsePhase::Over;
        self.finish(self.outcome(), steps);
    }

    /// How the request ended, by what was seen of its response.
    fn outcome(&self) -> Outcome {
        match (self.response, self.status) {
            (ResponsePhase::Awaited, _) if self.headers_are_shown() => Outcome::ClientAbort,
            (ResponsePhase::Awaited, _) => Outcome::Unknown,
            (_, None) => Outcome::Unreachable,
            (_, Some(500..)) => Outcome::ServerError,
            (ResponsePhase::Begun { body_seen: true }, _) => Outcome::ClientAbort,
            // a body that is not shown ends unseen
            (ResponsePhase::Begun { body_seen: false } | ResponsePhase::Over, _) => Outcome::Done,
        }
    }

    fn headers_are_shown(&self) -> bool {
        self.headers_expected
            || self
                .announced
                .is_some_and(|(_, response)| response != BodyMode::None)
    }

    fn finish(&mut self, outcome: Outcome, steps: &mut Vec<Step>) {
        if !self.placed || std::mem::replace(&mut self.finished, true) {
            return;
        }
        let findings = self.watcher.as_ref().map(Watcher::findings);
        if let Some(tokens) = findings.and_then(|findings| findings.cached_tokens) {
            steps.push(Step::CachedTokens(tokens));
        }
        steps.push(Step::Finish(outcome));
    }

    /// A message came that is larger than any this server takes: it can only have held a body.
    pub(super) fn oversized(&mut self, steps: &mut Vec<Step>) {
        if self.request == RequestPhase::Over {
            return self.end(End::Gateway, steps);
        }
        self.refuse(&Refusal::too_large(self.body_limit), steps);
    }

    /// The picker is about to exit: what has arrived is answered, then the stream ends with OK, which lets the exchange go
    /// on without us. Not to be called while placing.
    pub(super) fn drain(&mut self, steps: &mut Vec<Step>) {
        if self.closed {
            return;
        }
        if self.request == RequestPhase::Collecting && self.owed.headers {
            // the gateway has given us the body; ending now would lose it
            let message = "The endpoint picker is shutting down; send the request again.";
            return self.refuse(&Refusal::new(RefusalKind::ShuttingDown, message), steps);
        }
        self.end(End::Drained, steps);
    }

    /// The stream ended.
    pub(super) fn end(&mut self, end: End, steps: &mut Vec<Step>) {
        let outcome = match end {
            End::Gateway => self.outcome(),
            End::Drained if self.status.is_some_and(|status| status >= 500) => Outcome::ServerError,
            End::Drained => Outcome::Unknown,
        };
        self.finish(outcome, steps);
        if !self.closed {
            self.close(steps);
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
