//! `/v1/chat/completions`.

use std::io::Write;

use lmetric_tokenize::{ChatError, ChatRequest};
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::generation::{Finish, Generation, Usage};
use super::params::{Fields, Params};
use super::shape::{Envelope, FINGERPRINT, finish_reason, stream_usage_json, usage_json};
use super::stream::{Events, StreamedToken};
use crate::site::Settings;

/// How a body becomes a conversation.
pub(crate) type Reader = fn(&mut Map<String, Value>) -> Result<ChatRequest, ChatError>;

/// The ids of a conversation.
pub(crate) fn prompt(
    body: &[u8],
    fields: &Fields<'_>,
    read: Reader,
    settings: &Settings,
) -> Result<Vec<u32>, ApiError> {
    let mut object: Map<String, Value> =
        serde_json::from_slice(body).map_err(|error| ApiError::not_json(error.column()))?;
    let chat = read(&mut object).map_err(|error| match error {
        ChatError::Missing(field) => ApiError::missing(field, fields.len()),
        ChatError::Type { field, expected } => {
            let list = expected.contains("list");
            let (kind, wanted) = if list {
                ("list_type", "list")
            } else {
                ("dict_type", "dictionary")
            };
            let input = fields
                .raw(&field)
                .unwrap_or_default()
                .trim_matches('"')
                .to_owned();
            let message = format!("Input should be a valid {wanted}");
            ApiError::schema(kind, &format!("body.{field}"), &message, &input)
        }
        other => ApiError::bad(other.to_string(), None),
    })?;
    if chat.messages.is_empty() {
        let text = "Cannot apply chat template to an empty conversation. Provide at least one message.";
        return Err(ApiError::bad(text, None));
    }
    settings
        .codec
        .encode_chat(&chat)
        .map_err(|error| ApiError::bad(error.to_string(), None))
}

/// The whole answer.
pub(crate) fn answer(
    envelope: &Envelope,
    params: &Params,
    settings: &Settings,
    prompt: &[u32],
    finish: &Finish,
    stops: &[bool],
) -> Value {
    let choices: Vec<Value> = finish
        .tokens
        .iter()
        .enumerate()
        .map(|(index, tokens)| {
            let text: String = tokens.iter().map(|id| settings.codec.word(*id)).collect();
            json!({
                "index": index,
                "message": {
                    "role": "assistant",
                    "content": text,
                    "refusal": null,
                    "annotations": null,
                    "audio": null,
                    "function_call": null,
                    "reasoning": null,
                },
                "logprobs": null,
                "finish_reason": finish_reason(stops[index]),
                "stop_reason": null,
                "token_ids": params.return_token_ids.then_some(tokens),
                "routed_experts": null,
            })
        })
        .collect();
    json!({
        "id": envelope.id,
        "object": "chat.completion",
        "created": envelope.created,
        "model": params.model,
        "choices": choices,
        "service_tier": null,
        "system_fingerprint": FINGERPRINT,
        "usage": usage_json(&finish.usage, settings.prompt_details, true),
        "prompt_logprobs": null,
        "prompt_token_ids": params.return_token_ids.then_some(prompt),
        "prompt_text": null,
        "kv_transfer_params": null,
        "ec_transfer_params": null,
        "metrics": null,
    })
}

/// Chunks of a streamed answer.
pub(crate) struct ChatEvents {
    head: String,
    params: Params,
    prompt_details: bool,
    counts: Vec<u32>,
}

impl ChatEvents {
    pub(crate) fn new(envelope: &Envelope, params: Params, settings: &Settings, choices: usize) -> Self {
        Self {
            head: envelope.head("chat.completion.chunk", &params.model),
            params,
            prompt_details: settings.prompt_details,
            counts: vec![0; choices],
        }
    }

    fn running_usage(&self, out: &mut Vec<u8>, prompt: usize, completion: u32) {
        if self.params.continuous_usage {
            let _ = write!(
                out,
                ",\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\"completion_tokens\":{completion},\"completion_tokens_details\":null}}",
                prompt as u32 + completion
            );
        }
    }
}

impl Events for ChatEvents {
    fn start(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        for choice in 0..generation.choices().len() {
            let _ = write!(
                out,
                "{}\"choices\":[{{\"index\":{choice},\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}]",
                self.head
            );
            self.running_usage(out, generation.prompt(choice).len(), 0);
            out.extend_from_slice(b",\"prompt_token_ids\":");
            if self.params.return_token_ids {
                let _ = serde_json::to_writer(&mut *out, generation.prompt(choice));
            } else {
                out.extend_from_slice(b"null");
            }
            out.extend_from_slice(b",\"prompt_text\":null}\n\n");
        }
    }

    fn token(&mut self, out: &mut Vec<u8>, generation: &Generation, token: StreamedToken) {
        let StreamedToken {
            choice,
            index: _,
            id,
            last,
        } = token;
        let text = generation.site().settings().codec.word(id);
        let _ = write!(
            out,
            "{}\"choices\":[{{\"index\":{choice},\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":",
            self.head
        );
        let _ = match last {
            None => write!(out, "null,\"token_ids\":"),
            Some(stops) => write!(
                out,
                "\"{}\",\"stop_reason\":null,\"token_ids\":",
                finish_reason(stops)
            ),
        };
        if self.params.return_token_ids {
            let _ = write!(out, "[{id}]}}]");
        } else {
            out.extend_from_slice(b"null}]");
        }
        self.counts[choice] += 1;
        self.running_usage(out, generation.prompt(choice).len(), self.counts[choice]);
        if last.is_some() && !self.params.include_usage {
            let _ = write!(out, ",\"system_fingerprint\":\"{FINGERPRINT}\"");
        }
        out.extend_from_slice(b"}\n\n");
    }

    fn end(&mut self, out: &mut Vec<u8>, usage: &Usage) {
        if self.params.include_usage {
            let usage = stream_usage_json(usage, self.prompt_details, true);
            let _ = write!(
                out,
                "{}\"choices\":[],\"usage\":{usage},\"system_fingerprint\":\"{FINGERPRINT}\"}}\n\n",
                self.head
            );
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
