//! What the gateway sent, and whether the replies fit.

use lmetric_epp::stream::DESTINATION;
use lmetric_proto::ext_proc::{
    BodyResponse, CommonResponse, HeaderMutation, ProcessingRequest, ProcessingResponse,
    body_mutation::Mutation, processing_request::Request, processing_response::Response,
};

/// One direction of an exchange.
#[derive(Debug, Default)]
struct Side {
    headers: usize,
    bodies: usize,
    trailers: usize,
    octets: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Sent {
    request: Side,
    response: Side,
}

impl Sent {
    pub(super) fn note(&mut self, message: &ProcessingRequest) {
        match &message.request {
            Some(Request::RequestHeaders(_)) => self.request.headers += 1,
            Some(Request::RequestBody(body)) => self.request.body(&body.body),
            Some(Request::RequestTrailers(_)) => self.request.trailers += 1,
            Some(Request::ResponseHeaders(_)) => self.response.headers += 1,
            Some(Request::ResponseBody(body)) => self.response.body(&body.body),
            Some(Request::ResponseTrailers(_)) => self.response.trailers += 1,
            None => {}
        }
    }

    /// At most one reply to each message; bodies come back as they were sent; one destination; nothing after an
    /// answer of the picker's own.
    pub(super) fn check(&self, replies: &[ProcessingResponse]) {
        let (mut request, mut response) = (Side::default(), Side::default());
        let mut destinations = 0;
        for (at, reply) in replies.iter().enumerate() {
            let Some(said) = &reply.response else {
                panic!("a reply to nothing");
            };
            match said {
                Response::RequestHeaders(headers) => {
                    request.headers += 1;
                    destinations += count(headers.response.as_ref());
                }
                Response::RequestBody(body) => {
                    request.back(body);
                    destinations += count(body.response.as_ref());
                }
                Response::RequestTrailers(_) => request.trailers += 1,
                Response::ResponseHeaders(_) => response.headers += 1,
                Response::ResponseBody(body) => response.back(body),
                Response::ResponseTrailers(_) => response.trailers += 1,
                Response::ImmediateResponse(answer) => {
                    let status = answer.status.map_or(0, |status| status.code);
                    assert!((400..600).contains(&status), "answers {status}");
                    assert_eq!(at + 1, replies.len(), "something follows the picker's own answer");
                    assert!(response.headers == 0, "two answers");
                }
            }
        }
        assert!(request.headers <= 1, "request headers are answered twice");
        assert!(destinations <= 1, "two destinations");
        request.fits(&self.request);
        response.fits(&self.response);
    }
}

impl Side {
    fn body(&mut self, octets: &[u8]) {
        self.bodies += 1;
        self.octets.extend_from_slice(octets);
    }

    fn back(&mut self, reply: &BodyResponse) {
        let common = reply.response.as_ref();
        let mutation = common.and_then(|common| common.body_mutation.as_ref());
        match mutation.and_then(|mutation| mutation.mutation.as_ref()) {
            Some(Mutation::StreamedResponse(piece)) => self.octets.extend_from_slice(&piece.body),
            Some(other) => panic!("a body is replaced: {other:?}"),
            None => self.bodies += 1,
        }
    }

    fn fits(&self, sent: &Self) {
        assert!(
            self.headers <= sent.headers && self.bodies <= sent.bodies && self.trailers <= sent.trailers,
            "more replies than messages: {} {} {} to {} {} {}",
            self.headers,
            self.bodies,
            self.trailers,
            sent.headers,
            sent.bodies,
            sent.trailers
        );
        assert!(sent.octets.starts_with(&self.octets), "a body comes back changed");
    }
}

fn count(reply: Option<&CommonResponse>) -> usize {
    let set = |mutation: &HeaderMutation| {
        let headers = mutation
            .set_headers
            .iter()
            .filter_map(|option| option.header.as_ref());
        headers.filter(|header| header.key == DESTINATION).count()
    };
    reply
        .and_then(|reply| reply.header_mutation.as_ref())
        .map_or(0, set)
}
