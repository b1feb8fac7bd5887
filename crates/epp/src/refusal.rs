//! What a client is told when its request is not placed: a status and an error body in OpenAI's shape.

use std::fmt;

use bytes::Bytes;
use lmetric_scheduler::NoEndpoint;

/// Why a request is answered by the picker instead of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// The body is no JSON object (400).
    BadRequest,
    /// No engine serves that model (404).
    UnknownModel,
    /// The body is larger than the configured limit (413).
    TooLarge,
    /// Shed to protect the engines (429).
    Overloaded,
    /// No engine can take the request (503).
    NoEndpoint,
    /// The picker is about to exit (503).
    ShuttingDown,
}

impl RefusalKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::BadRequest,
        Self::UnknownModel,
        Self::TooLarge,
        Self::Overloaded,
        Self::NoEndpoint,
        Self::ShuttingDown,
    ];

    /// HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::UnknownModel => 404,
            Self::TooLarge => 413,
            Self::Overloaded => 429,
            Self::NoEndpoint | Self::ShuttingDown => 503,
        }
    }

    /// Stable name for metrics, logs and the proxy's access log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::UnknownModel => "unknown_model",
            Self::TooLarge => "too_large",
            Self::Overloaded => "overloaded",
            Self::NoEndpoint => "no_endpoint",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// `error.type` of the body, as vLLM names them.
    fn error_type(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequestError",
            Self::UnknownModel => "NotFoundError",
            Self::TooLarge => "RequestEntityTooLargeError",
            Self::Overloaded => "RateLimitError",
            Self::NoEndpoint | Self::ShuttingDown => "ServiceUnavailableError",
        }
    }

    /// Whether the same request may succeed a moment later.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Overloaded | Self::NoEndpoint | Self::ShuttingDown)
    }
}

/// A request that is answered by the picker itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Decides the status.
    pub kind: RefusalKind,
    /// For the client: what is wrong, and the remedy where there is one.
    pub message: String,
    /// Field of the request that is at fault.
    pub param: Option<&'static str>,
}

impl Refusal {
    /// A refusal with no field at fault.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            param: None,
        }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::BadRequest, message)
    }

    /// 404; `served` are the names that would have worked.
    pub fn unknown_model(model: &str, served: &[String]) -> Self {
        let message = if served.is_empty() {
            format!("The model `{model}` does not exist.")
        } else {
            format!(
                "The model `{model}` does not exist. Served here: {}.",
                served.join(", ")
            )
        };
        Self {
            param: Some("model"),
            ..Self::new(RefusalKind::UnknownModel, message)
        }
    }

    /// 413; `limit` in bytes.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            RefusalKind::TooLarge,
            format!("The request body is larger than {limit} bytes, the limit of this gateway."),
        )
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.kind.status()
    }

    /// `{"error": {"message", "type", "param", "code"}}`.
    pub fn body(&self) -> Bytes {
        let body = serde_json::json!({
            "error": {
                "message": self.message,
                "type": self.kind.error_type(),
                "param": self.param,
                "code": self.status(),
            }
        });
        Bytes::from(body.to_string())
    }
}

impl From<NoEndpoint> for Refusal {
    fn from(reason: NoEndpoint) -> Self {
        Self::new(
            RefusalKind::NoEndpoint,
            format!("No engine can take the request: {reason}."),
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status(), self.kind.reason(), self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_has_openais_shape() {
        let refusal = Refusal::unknown_model("nope", &["a".to_owned(), "b".to_owned()]);
        let body: serde_json::Value = serde_json::from_slice(&refusal.body()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({"error": {
                "message": "The model `nope` does not exist. Served here: a, b.",
                "type": "NotFoundError",
                "param": "model",
                "code": 404,
            }})
        );
    }

    #[test]
    fn no_endpoint_is_503_and_says_why() {
        let refusal = Refusal::from(NoEndpoint::SubsetEmpty { ready: 3 });
        assert_eq!(refusal.status(), 503);
        assert!(refusal.message.contains("3 ready endpoints"));
        assert!(refusal.kind.is_transient());
    }
}
