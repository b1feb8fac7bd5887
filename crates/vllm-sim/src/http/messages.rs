//! Anthropic's `/v1/messages`.

use std::io::Write;

use serde_json::{Value, json};

use super::generation::{Finish, Generation, Usage};
use super::params::Params;
use super::shape::Envelope;
use super::stream::{Events, StreamedToken};
use crate::site::Settings;

fn stop_reason(stops: bool) -> &'static str {
    if stops { "end_turn" } else { "max_tokens" }
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.cached + usage.created),
        "output_tokens": usage.completion,
        "cache_creation_input_tokens": usage.created,
        "cache_read_input_tokens": usage.cached,
    })
}

/// The whole answer.
pub(crate) fn answer(
    envelope: &Envelope,
    params: &Params,
    settings: &Settings,
    finish: &Finish,
    stops: bool,
) -> Value {
    let text: String = finish.tokens[0]
        .iter()
        .map(|id| settings.codec.word(*id))
        .collect();
    json!({
        "id": envelope.id,
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "model": params.model,
        "stop_reason": stop_reason(stops),
        "usage": usage_json(&finish.usage),
    })
}

/// Events of a streamed answer.
pub(crate) struct MessageEvents {
    id: String,
    model: Value,
    stops: bool,
}

impl MessageEvents {
    pub(crate) fn new(envelope: &Envelope, params: &Params) -> Self {
        Self {
            id: envelope.id.clone(),
            model: Value::from(params.model.as_str()),
            stops: false,
        }
    }
}

impl Events for MessageEvents {
    fn start(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        let Self { id, model, .. } = self;
        let prompt = generation.prompt(0).len();
        let _ = write!(
            out,
            "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"id\":\"{id}\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":{model},\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{{\"input_tokens\":{prompt},\"output_tokens\":0}}}}}}\n\n\
             event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"content_block\":{{\"type\":\"text\",\"text\":\"\"}},\"index\":0}}\n\n"
        );
    }

    fn token(&mut self, out: &mut Vec<u8>, generation: &Generation, token: StreamedToken) {
        let text = generation.site().settings().codec.word(token.id);
        let _ = write!(
            out,
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}},\"index\":0}}\n\n"
        );
        self.stops |= token.last == Some(true);
    }

    fn end(&mut self, out: &mut Vec<u8>, usage: &Usage) {
        let (reason, usage) = (stop_reason(self.stops), usage_json(usage));
        let _ = write!(
            out,
            "event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":0}}\n\n\
             event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\",\"stop_sequence\":null}},\"usage\":{usage}}}\n\n\
             event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
        );
    }
}
