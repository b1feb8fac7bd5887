//! `/v1/completions`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::error::ApiError;
use super::generation::{Finish, Generation, Usage};
use super::params::{Fields, Params};
use super::shape::{Envelope, FINGERPRINT, finish_reason, usage_json};
use super::stream::{Events, StreamedToken};
use crate::site::Settings;

/// The prompts of a request: a text, texts, ids or lists of ids.
pub(crate) fn prompts(fields: &Fields<'_>, settings: &Settings) -> Result<Vec<Arc<[u32]>>, ApiError> {
    let empty = || {
        ApiError::parameter(
            "Either prompt or prompt_embeds must be provided and non-empty.",
            "prompt",
            None,
        )
    };
    let text = fields.raw("prompt").ok_or_else(empty)?;
    let add_special_tokens = fields.get("add_special_tokens")?.unwrap_or(true);
    let encode = |text: &str| -> Result<Arc<[u32]>, ApiError> {
        let ids = settings.codec.encode(text, add_special_tokens);
        ids.map(Arc::from)
            .map_err(|error| ApiError::bad(error.to_string(), None))
    };
    let prompts: Vec<Arc<[u32]>> = if let Ok(ids) = serde_json::from_str::<Vec<u32>>(text) {
        vec![ids.into()]
    } else if let Ok(text) = serde_json::from_str::<String>(text) {
        vec![encode(&text)?]
    } else if let Ok(texts) = serde_json::from_str::<Vec<String>>(text) {
        texts.iter().map(|text| encode(text)).collect::<Result<_, _>>()?
    } else if let Ok(lists) = serde_json::from_str::<Vec<Vec<u32>>>(text) {
        lists.into_iter().map(Arc::from).collect()
    } else {
        return Err(ApiError::schema(
            "string_type",
            "body.prompt",
            "Input should be a valid string, list of strings, or list of token ids",
            &text.chars().take(40).collect::<String>(),
        ));
    };
    if prompts.is_empty() || prompts.iter().any(|prompt| prompt.is_empty()) {
        return Err(empty());
    }
    Ok(prompts)
}

/// The whole answer.
pub(crate) fn answer(
    envelope: &Envelope,
    params: &Params,
    settings: &Settings,
    prompts: &[Arc<[u32]>],
    finish: &Finish,
    stops: &[bool],
) -> Value {
    let choices: Vec<Value> = finish
        .tokens
        .iter()
        .enumerate()
        .map(|(index, tokens)| {
            let text: String = tokens.iter().map(|id| settings.codec.word(*id)).collect();
            let prompt = &prompts[index / params.n as usize];
            json!({
                "index": index,
                "text": text,
                "logprobs": null,
                "finish_reason": finish_reason(stops[index]),
                "stop_reason": null,
                "token_ids": params.return_token_ids.then_some(tokens),
                "prompt_logprobs": null,
                "prompt_token_ids": params.return_token_ids.then_some(prompt.as_ref()),
                "routed_experts": null,
            })
        })
        .collect();
    json!({
        "id": envelope.id,
        "object": "text_completion",
        "created": envelope.created,
        "model": params.model,
        "choices": choices,
        "service_tier": null,
        "system_fingerprint": FINGERPRINT,
        "usage": usage_json(&finish.usage, settings.prompt_details, false),
        "kv_transfer_params": null,
        "ec_transfer_params": null,
        "metrics": null,
    })
}

/// Chunks of a streamed answer.
pub(crate) struct CompletionEvents {
    head: String,
    params: Params,
    prompt_details: bool,
    started: Vec<bool>,
    counts: Vec<u32>,
}

impl CompletionEvents {
    pub(crate) fn new(envelope: &Envelope, params: Params, settings: &Settings, choices: usize) -> Self {
        Self {
            head: envelope.head("text_completion", &params.model),
            params,
            prompt_details: settings.prompt_details,
            started: vec![false; choices],
            counts: vec![0; choices],
        }
    }
}

impl Events for CompletionEvents {
    fn start(&mut self, _out: &mut Vec<u8>, _generation: &Generation) {}

    fn token(&mut self, out: &mut Vec<u8>, generation: &Generation, token: StreamedToken) {
        use std::io::Write;
        let text = generation.site().settings().codec.word(token.id);
        let reason = token
            .last
            .map_or("null", |stops| if stops { "\"stop\"" } else { "\"length\"" });
        let StreamedToken {
            choice,
            index: _,
            id,
            last,
        } = token;
        let _ = write!(
            out,
            "{}\"choices\":[{{\"index\":{choice},\"text\":\"{text}\",\"logprobs\":null,\"finish_reason\":{reason},\"stop_reason\":null,\"prompt_token_ids\":",
            self.head
        );
        if self.params.return_token_ids && !self.started[choice] {
            let _ = serde_json::to_writer(&mut *out, generation.prompt(choice));
        } else {
            out.extend_from_slice(b"null");
        }
        self.started[choice] = true;
        self.counts[choice] += 1;
        if self.params.return_token_ids {
            let _ = write!(out, ",\"token_ids\":[{id}]}}]");
        } else {
            out.extend_from_slice(b",\"token_ids\":null}]");
        }
        if self.params.continuous_usage {
            let (prompt, completion) = (generation.prompt(choice).len() as u32, self.counts[choice]);
            let _ = write!(
                out,
                ",\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\"completion_tokens\":{completion},\"completion_tokens_details\":null}}",
                prompt + completion
            );
        }
        if last.is_some() && !self.params.include_usage {
            let _ = write!(out, ",\"system_fingerprint\":\"{FINGERPRINT}\"");
        }
        out.extend_from_slice(b"}\n\n");
    }

    fn end(&mut self, out: &mut Vec<u8>, usage: &Usage) {
        use std::io::Write;
        if self.params.include_usage {
            let usage = super::shape::stream_usage_json(usage, self.prompt_details, false);
            let _ = write!(
                out,
                "{}\"choices\":[],\"usage\":{usage},\"system_fingerprint\":\"{FINGERPRINT}\"}}\n\n",
                self.head
            );
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
