//! Answers and their bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use serde_json::Value;

use super::stream::TokenStream;

/// An answer.
pub(crate) type Answer = Response<SimBody>;

/// A body: at once, or token by token.
pub(crate) enum SimBody {
    /// All of it.
    Full(Bytes),
    /// Server-sent events.
    Stream(Box<TokenStream>),
}

/// The connection has to be cut.
#[derive(Debug, thiserror::Error)]
#[error("the engine crashed")]
pub(crate) struct Cut;

impl Body for SimBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(stream) => stream
                .poll(context)
                .map(|chunk| chunk.map(|chunk| chunk.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

pub(crate) fn answer(status: StatusCode, content_type: Option<&'static str>, body: SimBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    if let Some(content_type) = content_type {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    answer
}

pub(crate) fn json_answer(status: StatusCode, body: &Value) -> Answer {
    answer(
        status,
        Some("application/json"),
        SimBody::Full(Bytes::from(body.to_string())),
    )
}

pub(crate) fn empty_answer(status: StatusCode) -> Answer {
    answer(status, None, SimBody::Full(Bytes::new()))
}
