//! Messages of a gateway.

use bytes::Bytes;
use lmetric_proto::{
    core::{HeaderMap, HeaderValue},
    ext_proc::{
        HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration, processing_request::Request,
    },
    mode::processing_mode::BodySendMode,
};

/// Any.
pub fn of(request: Request) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(request),
        ..ProcessingRequest::default()
    }
}

fn map<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderMap {
    let headers = headers.into_iter().map(|(key, value)| HeaderValue {
        key: key.to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    });
    HeaderMap {
        headers: headers.collect(),
    }
}

/// The headers of a chat, and `more`.
pub fn request_headers(more: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    let own = [(":method", "POST"), (":path", "/v1/chat/completions")];
    of(Request::RequestHeaders(HttpHeaders {
        headers: Some(map(own.into_iter().chain(more.iter().copied()))),
        end_of_stream,
    }))
}

/// A piece of the request's body.
pub fn request_body(body: impl Into<Bytes>, end_of_stream: bool) -> ProcessingRequest {
    of(Request::RequestBody(HttpBody {
        body: body.into(),
        end_of_stream,
    }))
}

/// The headers of a stream of events.
pub fn response_headers(status: u16, end_of_stream: bool) -> ProcessingRequest {
    let status = status.to_string();
    of(Request::ResponseHeaders(HttpHeaders {
        headers: Some(map([
            (":status", status.as_str()),
            ("content-type", "text/event-stream"),
        ])),
        end_of_stream,
    }))
}

/// A piece of the response's body.
pub fn response_body(body: impl Into<Bytes>) -> ProcessingRequest {
    of(Request::ResponseBody(HttpBody {
        body: body.into(),
        end_of_stream: false,
    }))
}

/// The same message, ending the response.
pub fn last(mut message: ProcessingRequest) -> ProcessingRequest {
    if let Some(Request::ResponseBody(body)) = &mut message.request {
        body.end_of_stream = true;
    }
    message
}

fn announcing(
    mut message: ProcessingRequest,
    request: BodySendMode,
    response: BodySendMode,
) -> ProcessingRequest {
    message.protocol_config = Some(ProtocolConfiguration {
        request_body_mode: request.into(),
        response_body_mode: response.into(),
        send_body_without_waiting_for_header_response: false,
    });
    message
}

/// Announces FULL_DUPLEX_STREAMED both ways.
pub fn duplex(message: ProcessingRequest) -> ProcessingRequest {
    announcing(
        message,
        BodySendMode::FullDuplexStreamed,
        BodySendMode::FullDuplexStreamed,
    )
}

/// Announces BUFFERED requests and no response bodies.
pub fn light(message: ProcessingRequest) -> ProcessingRequest {
    announcing(message, BodySendMode::Buffered, BodySendMode::None)
}
