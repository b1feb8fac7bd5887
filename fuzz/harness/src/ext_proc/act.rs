//! What the gateway does, one after the other, as an input tells it.
//!
//! An act is an octet for its kind (the remainder by [`KINDS`]) and what that takes:
//!
//! | kind | takes | does |
//! |---|---|---|
//! | 0, 4 | end of stream, headers (a length of two octets, text) | request headers, response headers |
//! | 1, 5 | end of stream, a length of two octets, the octets | a piece of the request's body, of the answer's |
//! | 2, 6 | | trailers of the request, of the answer |
//! | 3 | end of stream, a number of KiB | a long piece of the request's body |
//! | 7 | a length of two octets, a `ProcessingRequest` in protobuf | whatever that is |
//! | 8 | a number | ends its side, fails, leaves, or the picker is told to stop |
//! | 9 | tens of milliseconds | waits |

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use lmetric_proto::{
    core::{HeaderMap, HeaderValue},
    ext_proc::{
        HttpBody, HttpHeaders, HttpTrailers, ProcessingRequest, ProtocolConfiguration,
        processing_request::Request,
    },
};
use prost::Message as _;
use tonic::Status;

const KINDS: u8 = 10;
/// An input with more acts tells nothing new.
const MOST: usize = 64;
/// Body modes that a gateway may announce, and one that no protocol knows.
const MODES: i32 = 7;

/// What the gateway does.
#[derive(Debug)]
pub(super) enum Act {
    /// Sends a message.
    Send(Box<ProcessingRequest>),
    /// The transport fails.
    Fail(Status),
    /// Sends no more.
    HalfClose,
    /// Hears no more.
    Leave,
    /// The picker is told to stop.
    Drain,
    /// Waits.
    Pass(Duration),
}

/// All acts; the first message announces the modes.
pub(super) fn read(input: &mut Unstructured<'_>, modes: u8) -> Vec<Act> {
    let mut acts = Vec::new();
    while !input.is_empty() && acts.len() < MOST {
        match act(input) {
            Ok(act) => acts.push(act),
            Err(_) => break,
        }
    }
    let mut messages = acts.iter_mut().filter_map(|act| match act {
        Act::Send(message) => Some(message),
        _ => None,
    });
    if let Some(first) = messages.next().filter(|_| modes > 0) {
        let modes = i32::from(modes) - 1;
        first.protocol_config = Some(ProtocolConfiguration {
            request_body_mode: modes % MODES,
            response_body_mode: modes / MODES % MODES,
            send_body_without_waiting_for_header_response: false,
        });
    }
    acts
}

fn act(input: &mut Unstructured<'_>) -> Result<Act> {
    let kind = input.arbitrary::<u8>()? % KINDS;
    let send = |request| {
        Act::Send(Box::new(ProcessingRequest {
            request: Some(request),
            ..ProcessingRequest::default()
        }))
    };
    Ok(match kind {
        0 => send(Request::RequestHeaders(headers(input)?)),
        1 => send(Request::RequestBody(body(input)?)),
        2 => send(Request::RequestTrailers(HttpTrailers::default())),
        3 => {
            let end_of_stream = input.arbitrary::<u8>()? & 1 != 0;
            let size = usize::from(input.arbitrary::<u8>()?) << 10;
            send(Request::RequestBody(HttpBody {
                body: vec![b' '; size].into(),
                end_of_stream,
            }))
        }
        4 => send(Request::ResponseHeaders(headers(input)?)),
        5 => send(Request::ResponseBody(body(input)?)),
        6 => send(Request::ResponseTrailers(HttpTrailers::default())),
        7 => {
            let message = ProcessingRequest::decode(octets(input)?).unwrap_or_default();
            Act::Send(Box::new(message))
        }
        8 => match input.arbitrary::<u8>()? % 6 {
            0 => Act::HalfClose,
            1 => Act::Leave,
            2 => Act::Drain,
            3 => Act::Fail(Status::cancelled("the gateway reset the stream")),
            4 => Act::Fail(Status::out_of_range("message too long")),
            _ => Act::Fail(Status::internal("broken")),
        },
        _ => Act::Pass(Duration::from_millis(10 * u64::from(input.arbitrary::<u8>()?))),
    })
}

fn octets<'i>(input: &mut Unstructured<'i>) -> Result<&'i [u8]> {
    let length = usize::from(input.arbitrary::<u16>()?).min(input.len());
    input.bytes(length)
}

fn body(input: &mut Unstructured<'_>) -> Result<HttpBody> {
    Ok(HttpBody {
        end_of_stream: input.arbitrary::<u8>()? & 1 != 0,
        body: Bytes::copy_from_slice(octets(input)?),
    })
}

/// A line for each header: name, blank, value. A line that begins with `=` is one of 60 KiB; no text at all is no map.
fn headers(input: &mut Unstructured<'_>) -> Result<HttpHeaders> {
    let end_of_stream = input.arbitrary::<u8>()? & 1 != 0;
    let text = octets(input)?;
    let header = |line: &[u8]| {
        let split = line.iter().position(|octet| *octet == b' ').unwrap_or(line.len());
        let (key, value) = line.split_at(split);
        let value = match value {
            [] => Bytes::new(),
            _ if key.starts_with(b"=") => vec![b'h'; 60 << 10].into(),
            [_, value @ ..] => Bytes::copy_from_slice(value),
        };
        HeaderValue {
            key: String::from_utf8_lossy(key).into_owned(),
            value: String::new(),
            raw_value: value,
        }
    };
    let map = HeaderMap {
        headers: text.split(|octet| *octet == b'\n').map(header).collect(),
    };
    Ok(HttpHeaders {
        headers: (!text.is_empty()).then_some(map),
        end_of_stream,
    })
}
