//! Refusals in vLLM's words.

use http::StatusCode;
use serde_json::{Value, json};

use super::body::{Answer, json_answer};

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<String>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: String, param: Option<&str>) -> Self {
        Self {
            status,
            kind,
            message,
            param: param.map(str::to_owned),
        }
    }

    /// A value that cannot be served.
    pub(crate) fn bad(message: impl Into<String>, param: Option<&str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message.into(), param)
    }

    /// A parameter with its value, the way vLLM appends them.
    pub(crate) fn parameter(message: impl std::fmt::Display, name: &str, value: Option<String>) -> Self {
        let value = value.map_or(String::new(), |value| format!(", value={value}"));
        Self::bad(format!("{message} (parameter={name}{value})"), Some(name))
    }

    /// A body that does not fit the schema.
    pub(crate) fn schema(kind: &str, location: &str, message: &str, input: &str) -> Self {
        let text = format!(
            "1 validation error:\n  {{'type': '{kind}', 'loc': '{location}', 'msg': '{message}', 'input': '{input}'}}"
        );
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", text, Some(location))
    }

    pub(crate) fn missing(field: &str, fields: usize) -> Self {
        Self::schema(
            "missing",
            &format!("body.{field}"),
            "Field required",
            &format!("<dict of {fields} items>"),
        )
    }

    pub(crate) fn not_json(at: usize) -> Self {
        let text = format!(
            "1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {{'error': 'Expecting value'}}}}"
        );
        Self::new(
            StatusCode::BAD_REQUEST,
            "Bad Request",
            text,
            Some(&format!("body.{at}")),
        )
    }

    pub(crate) fn no_body() -> Self {
        Self::schema("missing", "body", "Field required", "None")
    }

    pub(crate) fn media_type() -> Self {
        let text = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", text.to_owned(), None)
    }

    pub(crate) fn no_model(name: &str, served: &str) -> Self {
        let text = format!("The model `{name}` does not exist. Valid aliases: {served}.");
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", text, Some("model"))
    }

    pub(crate) fn too_long(limit: u32, tokens: usize, at_least: bool) -> Self {
        let at_least = if at_least { "at least " } else { "" };
        Self::parameter(
            format_args!(
                "This model's maximum context length is {limit} tokens. However, your prompt contains {at_least}{tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
            ),
            "input_tokens",
            Some(tokens.to_string()),
        )
    }

    pub(crate) fn busy() -> Self {
        let text = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "Service Unavailable",
            text.to_owned(),
            None,
        )
    }

    pub(crate) fn engine_dead() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            ENGINE_DEAD.to_owned(),
            None,
        )
    }

    pub(crate) fn body(&self) -> Value {
        let Self {
            status,
            kind,
            message,
            param,
        } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": status.as_u16()}})
    }

    pub(crate) fn answer(&self) -> Answer {
        json_answer(self.status, &self.body())
    }
}

const ENGINE_DEAD: &str = "EngineCore encountered an issue. See stack trace (above) for the root cause.";

/// What a stream ends with when the engine dies, before `[DONE]`.
pub(crate) const DEAD_CHUNK: &str = "data: {\"error\": {\"message\": \"EngineCore encountered an issue. See stack trace (above) for the root cause.\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\n";
