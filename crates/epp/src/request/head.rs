//! The headers of a request, as far as placing it needs them.

use std::borrow::Cow;

use lmetric_proto::core::{HeaderMap, HeaderValue};
use xxhash_rust::xxh3::xxh3_64;

/// Headers that name a session, the most telling first.
const SESSION_HEADERS: [&str; 3] = ["x-session-id", "x-session-token", "x-conversation-id"];
/// A longer id is cut: it is kept for `/debug/decisions`.
const MAX_REQUEST_ID: usize = 128;

/// What the headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `:method`, where the gateway sends it.
    pub method: Option<String>,
    /// `:path` without its query; empty where the gateway does not send it.
    pub path: String,
    /// `x-request-id`.
    pub request_id: Option<String>,
    /// Hash of the session's name.
    pub session: Option<u64>,
    /// `content-length`.
    pub content_length: Option<u64>,
    /// The body is compressed.
    pub encoded: bool,
}

impl Head {
    /// Reads headers. Pseudo-headers may be missing; of a repeated header the first counts.
    pub fn read(headers: Option<&HeaderMap>) -> Self {
        let headers = headers.map_or(&[][..], |map| &map.headers[..]);
        let mut head = Self::default();
        let mut session_rank = SESSION_HEADERS.len();
        for header in headers {
            let key = header.key.as_str();
            if key.eq_ignore_ascii_case(":path") {
                let path = text(header);
                path.split(['?', '#'])
                    .next()
                    .unwrap_or_default()
                    .clone_into(&mut head.path);
            } else if key.eq_ignore_ascii_case(":method") {
                head.method = Some(text(header).into_owned());
            } else if key.eq_ignore_ascii_case("x-request-id") {
                let id: String = text(header).chars().take(MAX_REQUEST_ID).collect();
                head.request_id = head.request_id.take().or((!id.is_empty()).then_some(id));
            } else if key.eq_ignore_ascii_case("content-length") {
                head.content_length = text(header).trim().parse().ok();
            } else if key.eq_ignore_ascii_case("content-encoding") {
                head.encoded = !text(header).trim().eq_ignore_ascii_case("identity");
            } else if let Some(rank) = SESSION_HEADERS[..session_rank]
                .iter()
                .position(|name| key.eq_ignore_ascii_case(name))
                && !value(header).is_empty()
            {
                session_rank = rank;
                head.session = Some(xxh3_64(value(header)));
            }
        }
        head
    }
}

/// A header's value: Envoy fills `raw_value`, other gateways may fill `value`.
fn value(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() {
        header.value.as_bytes()
    } else {
        &header.raw_value
    }
}

/// A header's value as text.
pub(crate) fn text(header: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(key: &str, value: &str) -> HeaderValue {
        HeaderValue {
            key: key.to_owned(),
            raw_value: value.to_owned().into(),
            ..HeaderValue::default()
        }
    }

    fn plain(key: &str, value: &str) -> HeaderValue {
        HeaderValue {
            key: key.to_owned(),
            value: value.to_owned(),
            ..HeaderValue::default()
        }
    }

    #[test]
    fn raw_value_wins_over_value() {
        let both = HeaderValue {
            value: "old".to_owned(),
            ..raw("x-request-id", "new")
        };
        let map = HeaderMap {
            headers: vec![both, plain(":path", "/v1/models?x=1"), plain(":METHOD", "GET")],
        };
        let head = Head::read(Some(&map));
        assert_eq!(head.request_id.as_deref(), Some("new"));
        assert_eq!(head.path, "/v1/models");
        assert_eq!(head.method.as_deref(), Some("GET"));
    }

    #[test]
    fn missing_headers_are_tolerated() {
        assert_eq!(Head::read(None), Head::default());
    }

    #[test]
    fn the_most_telling_session_header_wins_in_any_order() {
        let id = raw("x-session-id", "s");
        let token = raw("x-session-token", "t");
        for headers in [vec![id.clone(), token.clone()], vec![token, id]] {
            let head = Head::read(Some(&HeaderMap { headers }));
            assert_eq!(head.session, Some(xxh3_64(b"s")));
        }
    }
}
