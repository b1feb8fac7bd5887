//! The messages that the picker sends: always small, headers never echoed, bodies by reference.

use std::net::SocketAddr;

use bytes::Bytes;
use lmetric_proto::{
    core::{HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction},
    ext_proc::{
        BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, ImmediateResponse,
        ProcessingResponse, StreamedBodyResponse, TrailersResponse, body_mutation::Mutation,
        processing_response::Response,
    },
    http::{HttpStatus, StatusCode},
};
use prost_types::{Struct, Value, value::Kind};

use crate::refusal::{Refusal, RefusalKind};

/// Request header and metadata key that name the endpoint.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Metadata namespace of the load balancer.
pub const LOAD_BALANCER: &str = "envoy.lb";
/// Request header that names a data-parallel rank behind an address.
pub const RANK: &str = "x-data-parallel-rank";

/// Largest piece of a body in one reply; Envoy advises against more than 64 KB.
pub(super) const PIECE: usize = 62_000;

/// Where a request was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Endpoint.
    pub address: SocketAddr,
    /// Rank, when several share the address.
    pub rank: Option<u16>,
}

/// Which half of the exchange a body reply is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

impl Destination {
    /// Overwrites whatever the client sent, also where the rank plays no part.
    fn mutation(&self) -> HeaderMutation {
        let mut mutation = HeaderMutation {
            set_headers: vec![overwrite(DESTINATION, self.address.to_string())],
            remove_headers: Vec::new(),
        };
        match self.rank {
            Some(rank) => mutation.set_headers.push(overwrite(RANK, rank.to_string())),
            None => mutation.remove_headers.push(RANK.to_owned()),
        }
        mutation
    }

    fn metadata(&self) -> Struct {
        let address = Value {
            kind: Some(Kind::StringValue(self.address.to_string())),
        };
        let balancer = Value {
            kind: Some(Kind::StructValue(Struct {
                fields: [(DESTINATION.to_owned(), address)].into(),
            })),
        };
        Struct {
            fields: [(LOAD_BALANCER.to_owned(), balancer)].into(),
        }
    }

    fn common(&self) -> CommonResponse {
        CommonResponse {
            header_mutation: Some(self.mutation()),
            clear_route_cache: true,
            ..CommonResponse::default()
        }
    }
}

fn overwrite(key: &str, value: impl Into<Bytes>) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            value: String::new(),
            raw_value: value.into(),
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
    }
}

fn reply(response: Response, destination: Option<&Destination>) -> ProcessingResponse {
    ProcessingResponse {
        response: Some(response),
        dynamic_metadata: destination.map(Destination::metadata),
        mode_override: None,
    }
}

/// Answers the request headers, with the destination where it is known already.
pub(super) fn request_headers(destination: Option<&Destination>) -> ProcessingResponse {
    let common = destination.map(Destination::common).unwrap_or_default();
    let headers = HeadersResponse {
        response: Some(common),
    };
    reply(Response::RequestHeaders(headers), destination)
}

/// Answers the request headers while the destination is not known: takes away one that the client named.
pub(super) fn request_headers_without_destination() -> ProcessingResponse {
    let common = CommonResponse {
        header_mutation: Some(HeaderMutation {
            set_headers: Vec::new(),
            remove_headers: vec![DESTINATION.to_owned()],
        }),
        ..CommonResponse::default()
    };
    let headers = HeadersResponse {
        response: Some(common),
    };
    reply(Response::RequestHeaders(headers), None)
}

/// Answers the response headers.
pub(super) fn response_headers() -> ProcessingResponse {
    let headers = HeadersResponse {
        response: Some(CommonResponse::default()),
    };
    reply(Response::ResponseHeaders(headers), None)
}

/// Lets a body message pass unchanged, with the destination where the headers' answer did not have it.
pub(super) fn pass(side: Side, destination: Option<&Destination>) -> ProcessingResponse {
    let common = destination.map(Destination::common).unwrap_or_default();
    body_reply(side, common, destination)
}

fn body_reply(side: Side, common: CommonResponse, destination: Option<&Destination>) -> ProcessingResponse {
    let body = BodyResponse {
        response: Some(common),
    };
    let response = match side {
        Side::Request => Response::RequestBody(body),
        Side::Response => Response::ResponseBody(body),
    };
    reply(response, destination)
}

/// Sends a body back in pieces of at most [`PIECE`] bytes that share its memory. With `last`, the final piece
/// (an empty one for an empty body) ends the stream; without it an empty body is nothing.
pub(super) fn send_back(side: Side, body: &Bytes, last: bool) -> impl Iterator<Item = ProcessingResponse> {
    let pieces = body.len().div_ceil(PIECE).max(usize::from(last));
    let body = body.clone();
    (0..pieces).map(move |at| {
        let start = at * PIECE;
        let piece = StreamedBodyResponse {
            body: body.slice(start..body.len().min(start + PIECE)),
            end_of_stream: last && at + 1 == pieces,
        };
        let common = CommonResponse {
            body_mutation: Some(BodyMutation {
                mutation: Some(Mutation::StreamedResponse(piece)),
            }),
            ..CommonResponse::default()
        };
        body_reply(side, common, None)
    })
}

/// Answers the request trailers, with the destination in the metadata where no earlier answer had it.
pub(super) fn request_trailers(destination: Option<&Destination>) -> ProcessingResponse {
    let trailers = TrailersResponse::default();
    reply(Response::RequestTrailers(trailers), destination)
}

/// Answers the response trailers.
pub(super) fn response_trailers() -> ProcessingResponse {
    reply(Response::ResponseTrailers(TrailersResponse::default()), None)
}

/// Answers the client in an engine's place.
pub(super) fn refuse(refusal: &Refusal) -> ProcessingResponse {
    let status = match refusal.kind {
        RefusalKind::BadRequest => StatusCode::BadRequest,
        RefusalKind::UnknownModel => StatusCode::NotFound,
        RefusalKind::TooLarge => StatusCode::PayloadTooLarge,
        RefusalKind::Overloaded => StatusCode::TooManyRequests,
        RefusalKind::NoEndpoint | RefusalKind::ShuttingDown => StatusCode::ServiceUnavailable,
    };
    let mut headers = HeaderMutation {
        set_headers: vec![overwrite("content-type", "application/json")],
        remove_headers: Vec::new(),
    };
    if refusal.kind.is_transient() {
        headers.set_headers.push(overwrite("retry-after", "1"));
    }
    let immediate = ImmediateResponse {
        status: Some(HttpStatus { code: status.into() }),
        headers: Some(headers),
        body: refusal.body(),
        details: format!("lmetric_{}", refusal.kind.reason()),
    };
    reply(Response::ImmediateResponse(immediate), None)
}
