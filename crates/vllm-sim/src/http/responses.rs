//! OpenAI's `/v1/responses`, without a store of earlier ones.

use std::io::Write;

use serde_json::{Value, json};

use super::generation::{Finish, Generation, Usage};
use super::params::Params;
use super::shape::Envelope;
use super::stream::{Events, StreamedToken};
use crate::site::Settings;

/// What stays the same in all objects of one response.
#[derive(Clone, Debug)]
pub(crate) struct ResponseShape {
    id: String,
    item: String,
    created: u64,
    model: String,
    temperature: f64,
    max_output_tokens: Value,
}

impl ResponseShape {
    pub(crate) fn new(envelope: &Envelope, params: &Params, max_output_tokens: Option<u32>) -> Self {
        Self {
            id: envelope.id.replacen("resp-", "resp_", 1),
            item: format!("msg_{:016x}", rand::random::<u64>()),
            created: envelope.created,
            model: params.model.clone(),
            temperature: params.temperature.unwrap_or(1.0),
            max_output_tokens: max_output_tokens.into(),
        }
    }

    /// The response object; `done` is its text, whether it ended by itself, and its usage.
    pub(crate) fn object(&self, done: Option<(&str, bool, &Usage)>) -> Value {
        let cut = done.is_some_and(|(_, stops, _)| !stops);
        let usage = done.map(|(_, _, usage)| {
            json!({
                "input_tokens": usage.prompt,
                "input_tokens_details": {
                    "cached_tokens": usage.cached,
                    "cache_write_tokens": usage.created,
                    "input_tokens_per_turn": [],
                    "cached_tokens_per_turn": [],
                },
                "output_tokens": usage.completion,
                "output_tokens_details": {
                    "reasoning_tokens": 0,
                    "tool_output_tokens": 0,
                    "output_tokens_per_turn": [],
                    "tool_output_tokens_per_turn": [],
                },
                "total_tokens": usage.prompt + usage.completion,
            })
        });
        json!({
            "id": self.id,
            "created_at": self.created,
            "incomplete_details": cut.then(|| json!({"reason": "max_output_tokens"})),
            "instructions": null,
            "metadata": null,
            "model": self.model,
            "object": "response",
            "output": done.map_or_else(Vec::new, |(text, _, _)| vec![self.item(Some(text))]),
            "parallel_tool_calls": true,
            "temperature": self.temperature,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": false,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": null,
            "previous_response_id": null,
            "prompt": null,
            "reasoning": null,
            "service_tier": "auto",
            "status": match (done.is_some(), cut) {
                (false, _) => "in_progress",
                (true, true) => "incomplete",
                (true, false) => "completed",
            },
            "text": null,
            "top_logprobs": null,
            "truncation": "disabled",
            "usage": usage,
            "user": null,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": null,
            "ec_transfer_params": null,
            "input_messages": null,
            "output_messages": null,
        })
    }

    fn item(&self, text: Option<&str>) -> Value {
        let content = text.map(|text| part(text, &Value::Null));
        json!({
            "id": self.item,
            "content": content.into_iter().collect::<Vec<_>>(),
            "role": "assistant",
            "status": if text.is_some() { "completed" } else { "in_progress" },
            "type": "message",
            "phase": null,
        })
    }
}

fn part(text: &str, logprobs: &Value) -> Value {
    json!({"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs})
}

/// The whole answer.
pub(crate) fn answer(shape: &ResponseShape, settings: &Settings, finish: &Finish, stops: bool) -> Value {
    let text: String = finish.tokens[0]
        .iter()
        .map(|id| settings.codec.word(*id))
        .collect();
    shape.object(Some((&text, stops, &finish.usage)))
}

/// Events of a streamed answer.
pub(crate) struct ResponseEvents {
    shape: ResponseShape,
    text: String,
    stops: bool,
    sequence: u32,
}

impl ResponseEvents {
    pub(crate) fn new(shape: ResponseShape) -> Self {
        Self {
            shape,
            text: String::new(),
            stops: false,
            sequence: 0,
        }
    }

    fn event(&mut self, out: &mut Vec<u8>, kind: &str, mut fields: Value) {
        fields["sequence_number"] = self.sequence.into();
        fields["type"] = kind.into();
        if let Some(fields) = fields.as_object_mut() {
            fields.sort_keys();
        }
        self.sequence += 1;
        let _ = write!(out, "event: {kind}\ndata: {fields}\n\n");
    }
}

impl Events for ResponseEvents {
    fn open(&mut self, out: &mut Vec<u8>) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.shape.object(None);
            self.event(out, kind, json!({"response": response}));
        }
    }

    fn start(&mut self, out: &mut Vec<u8>, _generation: &Generation) {
        let item = self.shape.item(None);
        self.event(
            out,
            "response.output_item.added",
            json!({"item": item, "output_index": 0}),
        );
        let part = part("", &json!([]));
        let id = self.shape.item.clone();
        self.event(
            out,
            "response.content_part.added",
            json!({"content_index": 0, "item_id": id, "output_index": 0, "part": part}),
        );
    }

    fn token(&mut self, out: &mut Vec<u8>, generation: &Generation, token: StreamedToken) {
        let text = generation.site().settings().codec.word(token.id);
        let (item, sequence) = (&self.shape.item, self.sequence);
        let _ = write!(
            out,
            "event: response.output_text.delta\ndata: {{\"content_index\":0,\"delta\":\"{text}\",\"item_id\":\"{item}\",\"logprobs\":[],\"output_index\":0,\"sequence_number\":{sequence},\"type\":\"response.output_text.delta\"}}\n\n"
        );
        self.sequence += 1;
        self.text.push_str(text);
        self.stops |= token.last == Some(true);
    }

    fn end(&mut self, out: &mut Vec<u8>, usage: &Usage) {
        let (id, text) = (self.shape.item.clone(), self.text.clone());
        self.event(
            out,
            "response.output_text.done",
            json!({"content_index": 0, "item_id": id, "logprobs": [], "output_index": 0, "text": text}),
        );
        let part = part(&text, &Value::Null);
        self.event(
            out,
            "response.content_part.done",
            json!({"content_index": 0, "item_id": id, "output_index": 0, "part": part}),
        );
        let item = self.shape.item(Some(&text));
        self.event(
            out,
            "response.output_item.done",
            json!({"item": item, "output_index": 0}),
        );
        let response = self.shape.object(Some((&text, self.stops, usage)));
        self.event(out, "response.completed", json!({"response": response}));
    }
}
