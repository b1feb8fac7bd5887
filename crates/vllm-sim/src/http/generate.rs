//! `/inference/v1/generate`: token ids in, token ids out.

use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use super::error::ApiError;
use super::generation::{Finish, Generation, Usage};
use super::params::{Fields, Params};
use super::shape::{Envelope, finish_reason, stream_usage_json, usage_json};
use super::stream::{Events, StreamedToken};
use crate::site::Settings;

/// The prompt of a request.
pub(crate) fn prompt(fields: &Fields<'_>) -> Result<Arc<[u32]>, ApiError> {
    let ids: Vec<u32> = fields
        .get("token_ids")?
        .ok_or_else(|| ApiError::missing("token_ids", fields.len()))?;
    if ids.is_empty() {
        return Err(ApiError::parameter(
            "token_ids must not be empty.",
            "token_ids",
            None,
        ));
    }
    Ok(ids.into())
}

/// The whole answer.
pub(crate) fn answer(
    envelope: &Envelope,
    params: &Params,
    settings: &Settings,
    finish: &Finish,
    stops: &[bool],
) -> Value {
    let choices: Vec<Value> = finish
        .tokens
        .iter()
        .enumerate()
        .map(|(index, tokens)| {
            json!({
                "index": index,
                "finish_reason": finish_reason(stops[index]),
                "stop_reason": null,
                "token_ids": tokens,
                "routed_experts": null,
                "sampling_mask": null,
                "weight_versions": [{"version": "default", "start": 0, "end": tokens.len()}],
                "logprobs": null,
            })
        })
        .collect();
    json!({
        "request_id": envelope.id,
        "model": params.model,
        "created": envelope.created,
        "usage": usage_json(&finish.usage, settings.prompt_details, false),
        "prompt_logprobs": null,
        "prompt_token_id_logprobs": null,
        "prompt_token_ids": null,
        "mm_placeholders": null,
        "metrics": null,
        "kv_transfer_params": null,
        "ec_transfer_params": null,
        "output_mode": "tokens",
        "choices": choices,
    })
}

/// Chunks of a streamed answer.
pub(crate) struct GenerateEvents {
    id: String,
    include_usage: bool,
    prompt_details: bool,
}

impl GenerateEvents {
    pub(crate) fn new(envelope: &Envelope, params: &Params, settings: &Settings) -> Self {
        Self {
            id: envelope.id.clone(),
            include_usage: params.include_usage,
            prompt_details: settings.prompt_details,
        }
    }
}

impl Events for GenerateEvents {
    fn start(&mut self, _out: &mut Vec<u8>, _generation: &Generation) {}

    fn token(&mut self, out: &mut Vec<u8>, _generation: &Generation, token: StreamedToken) {
        let StreamedToken {
            choice,
            index,
            id,
            last,
        } = token;
        let _ = write!(
            out,
            "data: {{\"request_id\":\"{}\",\"usage\":null,\"output_mode\":\"tokens\",\"choices\":[{{\"index\":{choice},\"finish_reason\":",
            self.id
        );
        let _ = match last {
            Some(stops) => write!(out, "\"{}\"", finish_reason(stops)),
            None => write!(out, "null"),
        };
        let _ = write!(
            out,
            ",\"stop_reason\":null,\"token_ids\":[{id}],\"routed_experts\":null,\"sampling_mask\":null,\"weight_versions\":"
        );
        let _ = match last {
            Some(_) => write!(
                out,
                "[{{\"version\":\"default\",\"start\":0,\"end\":{}}}]",
                index + 1
            ),
            None => write!(out, "null"),
        };
        out.extend_from_slice(b",\"logprobs\":null}]}\n\n");
    }

    fn end(&mut self, out: &mut Vec<u8>, usage: &Usage) {
        if self.include_usage {
            let usage = stream_usage_json(usage, self.prompt_details, false);
            let _ = write!(
                out,
                "data: {{\"request_id\":\"{}\",\"usage\":{usage},\"output_mode\":\"tokens\",\"choices\":[]}}\n\n",
                self.id
            );
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
