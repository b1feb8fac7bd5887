//! `/tokenize`, the `render` endpoints and `/v1/messages/count_tokens`: tokens without generation.

use lmetric_tokenize::ChatRequest;
use serde_json::{Value, json};

use super::chat;
use super::completions;
use super::error::ApiError;
use super::params::Fields;
use super::shape::Envelope;
use crate::site::Settings;

/// `/tokenize` of a text or a conversation.
pub(crate) fn tokenize(body: &[u8], fields: &Fields<'_>, settings: &Settings) -> Result<Value, ApiError> {
    settings.model(fields.get::<String>("model")?.as_deref())?;
    let ids = if fields.raw("messages").is_some() {
        chat::prompt(body, fields, ChatRequest::from_openai, settings)?
    } else {
        let Some(text) = fields.get::<String>("prompt")? else {
            return Err(ApiError::missing("prompt", fields.len()));
        };
        let add_special_tokens = fields.get("add_special_tokens")?.unwrap_or(true);
        let ids = settings.codec.encode(&text, add_special_tokens);
        ids.map_err(|error| ApiError::bad(error.to_string(), None))?
    };
    Ok(json!({
        "count": ids.len(),
        "max_model_len": settings.max_model_len,
        "tokens": ids,
        "token_strs": null,
    }))
}

/// `/v1/completions/render`: one rendered request per prompt.
pub(crate) fn render_completions(
    fields: &Fields<'_>,
    envelope: &Envelope,
    settings: &Settings,
) -> Result<Value, ApiError> {
    let model = settings.model(fields.get::<String>("model")?.as_deref())?.0;
    let prompts = completions::prompts(fields, settings)?;
    let rendered = prompts.iter().map(|ids| rendered(ids, fields, envelope, &model));
    Ok(Value::Array(rendered.collect::<Result<_, _>>()?))
}

/// A `render` endpoint of conversations.
pub(crate) fn render_chat(
    body: &[u8],
    fields: &Fields<'_>,
    read: chat::Reader,
    envelope: &Envelope,
    settings: &Settings,
) -> Result<Value, ApiError> {
    let model = settings.model(fields.get::<String>("model")?.as_deref())?.0;
    let ids = chat::prompt(body, fields, read, settings)?;
    rendered(&ids, fields, envelope, &model)
}

/// `/v1/messages/count_tokens`.
pub(crate) fn count_tokens(body: &[u8], fields: &Fields<'_>, settings: &Settings) -> Result<Value, ApiError> {
    settings.model(fields.get::<String>("model")?.as_deref())?;
    let tokens = chat::prompt(body, fields, ChatRequest::from_anthropic, settings)?.len();
    Ok(json!({"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}}))
}

fn rendered(ids: &[u32], fields: &Fields<'_>, envelope: &Envelope, model: &str) -> Result<Value, ApiError> {
    let max_tokens: Option<u32> = fields.get("max_tokens")?;
    Ok(json!({
        "request_id": envelope.id,
        "token_ids": ids,
        "token_offsets": null,
        "features": null,
        "content_parts": null,
        "sampling_params": {
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "temperature": fields.get::<f64>("temperature")?.unwrap_or(1.0),
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "stop": [],
            "stop_token_ids": [],
            "max_tokens": max_tokens,
            "output_kind": 2,
            "skip_clone": true,
            "bad_words": [],
            "skip_reading_prefix_cache": false,
        },
        "model": model,
        "reasoning_ended": null,
        "reasoning_parser_kwargs": null,
        "return_token_ids": null,
        "output_mode": "tokens",
        "stream": false,
        "stream_options": null,
        "cache_salt": fields.get::<String>("cache_salt")?,
        "priority": 0,
        "kv_transfer_params": null,
        "ec_transfer_params": null,
    }))
}
