//! Parts that several APIs write alike.

use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use serde_json::{Value, json};

use super::generation::Usage;

/// As captured.
pub(crate) const FINGERPRINT: &str = "vllm-0.32.0-30bbf958";

/// Id and time of one answer.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) id: String,
    pub(crate) created: u64,
    /// For the `x-request-id` header.
    pub(crate) request_id: String,
}

impl Envelope {
    /// The client's request id if it sent one, else a random one.
    pub(crate) fn new(prefix: &str, headers: &HeaderMap) -> Self {
        let given = headers
            .get("x-request-id")
            .and_then(|id| id.to_str().ok())
            .filter(|id| !id.is_empty());
        // it goes into hand-written JSON
        let given = given.filter(|id| {
            id.bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
        });
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let random = format!("{:016x}", rand::random::<u64>());
        Self {
            id: format!("{prefix}-{}", given.unwrap_or(&random)),
            created,
            request_id: given.map_or_else(|| format!("{:032x}", rand::random::<u128>()), str::to_owned),
        }
    }

    /// The beginning of every chunk of a stream.
    pub(crate) fn head(&self, object: &str, model: &str) -> String {
        let model = Value::from(model);
        format!(
            "data: {{\"id\":\"{}\",\"object\":\"{object}\",\"created\":{},\"model\":{model},",
            self.id, self.created
        )
    }
}

pub(crate) fn finish_reason(stops: bool) -> &'static str {
    if stops { "stop" } else { "length" }
}

/// `usage` of a whole answer. Only chat tells how much was added to the cache.
pub(crate) fn usage_json(usage: &Usage, details: bool, created: bool) -> Value {
    let details = details.then(|| {
        json!({
            "cached_tokens": usage.cached,
            "created_cache_tokens": created.then_some(usage.created),
            "multimodal_tokens": null,
        })
    });
    json!({
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
        "prompt_tokens_details": details,
        "completion_tokens_details": null,
    })
}

/// `usage` at the end of a stream: nothing that is null.
pub(crate) fn stream_usage_json(usage: &Usage, details: bool, created: bool) -> Value {
    let mut json = json!({
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
    });
    if details {
        json["prompt_tokens_details"] = json!({"cached_tokens": usage.cached});
        if created {
            json["prompt_tokens_details"]["created_cache_tokens"] = usage.created.into();
        }
    }
    json
}
