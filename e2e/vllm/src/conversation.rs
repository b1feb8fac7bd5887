//! Conversations of every kind whose prefix the engine caches: each turn repeats the one before and adds to it.

use rand::{Rng, rngs::SmallRng};
use serde_json::{Value, json};

use crate::engine::MODEL;

const SYSTEM: &str = "You look after the catalogue of a town library. You answer in one sentence, you name the shelf, and you say so when \
                      a book is not there. The library opens at nine on weekdays and at ten on Saturdays.";
const WORDS: [&str; 16] = [
    "river", "lantern", "copper", "quiet", "harvest", "ledger", "窓", "übrig", "meadow", "signal", "winter",
    "thread", "🙂", "anchor", "paper", "orchard",
];

/// What a conversation's requests look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Chat messages.
    Chat,
    /// Chat messages with tools and a tool's answer.
    Tools,
    /// A text completion.
    Text,
    /// A completion of token ids.
    Tokens,
    /// A text completion on an adapter.
    Lora(&'static str),
    /// Chat messages under a cache salt.
    Salted,
}

/// All kinds, in the order in which conversations take them.
pub(crate) const KINDS: [Kind; 7] = [
    Kind::Chat,
    Kind::Tools,
    Kind::Text,
    Kind::Tokens,
    Kind::Lora("lora-a"),
    Kind::Salted,
    Kind::Lora("lora-b"),
];

/// A conversation that grows by a turn at a time.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// What its requests look like.
    pub(crate) kind: Kind,
    salt: u64,
    messages: Vec<Value>,
    text: String,
    ids: Vec<u32>,
}

impl Conversation {
    /// The `number`th conversation.
    pub(crate) fn new(number: usize, rng: &mut SmallRng) -> Self {
        let kind = KINDS[number % KINDS.len()];
        Self {
            kind,
            salt: rng.random(),
            messages: vec![json!({"role": "system", "content": SYSTEM})],
            text: format!("{SYSTEM}\n"),
            ids: (0..96).map(|n| 100 + n * 7).collect(),
        }
    }

    /// Path and body of the next turn.
    pub(crate) fn next(&mut self, rng: &mut SmallRng) -> (&'static str, Value) {
        let said = words(rng, 24);
        match self.kind {
            Kind::Chat | Kind::Tools | Kind::Salted => {
                self.messages.push(json!({"role": "user", "content": said}));
            }
            Kind::Text | Kind::Lora(_) => self.text.push_str(&said),
            Kind::Tokens => self.ids.extend((0..40).map(|_| rng.random_range(100..2_000))),
        }
        let chat = "/v1/chat/completions";
        let mut body = json!({"model": MODEL, "max_tokens": 8, "temperature": 0, "ignore_eos": true});
        let path = match self.kind {
            Kind::Chat => {
                body["messages"] = json!(self.messages);
                chat
            }
            Kind::Tools => {
                body["messages"] = json!(self.messages);
                body["tools"] = json!([{"type": "function", "function": {
                    "name": "find_book", "description": "Looks a book up in the catalogue & says <where> it stands.",
                    "parameters": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}}}]);
                chat
            }
            Kind::Salted => {
                body["messages"] = json!(self.messages);
                body["cache_salt"] = json!(format!("tenant-{}", self.salt));
                chat
            }
            Kind::Text => {
                body["prompt"] = json!(self.text);
                "/v1/completions"
            }
            Kind::Lora(adapter) => {
                body["model"] = json!(adapter);
                body["prompt"] = json!(self.text);
                "/v1/completions"
            }
            Kind::Tokens => {
                body["prompt"] = json!(self.ids);
                "/v1/completions"
            }
        };
        (path, body)
    }

    /// Takes the engine's answer into the conversation.
    pub(crate) fn answered(&mut self, answer: &Value, rng: &mut SmallRng) {
        let choice = &answer["choices"][0];
        let said = choice["message"]["content"]
            .as_str()
            .or(choice["text"].as_str())
            .unwrap_or_default();
        match self.kind {
            Kind::Chat | Kind::Salted => self.messages.push(json!({"role": "assistant", "content": said})),
            Kind::Tools => {
                let id = format!("call_{}", self.messages.len());
                let arguments = json!({"title": words(rng, 2)}).to_string();
                self.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
                    {"id": id, "type": "function", "function": {"name": "find_book", "arguments": arguments}}]}));
                self.messages
                    .push(json!({"role": "tool", "tool_call_id": id, "content": "{\"shelf\": \"S-12\"}"}));
            }
            Kind::Text | Kind::Lora(_) => self.text.push_str(said),
            Kind::Tokens => self.ids.extend((0..8).map(|_| rng.random_range(100..2_000))),
        }
    }
}

fn words(rng: &mut SmallRng, count: usize) -> String {
    let mut text = String::new();
    for _ in 0..count {
        text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
        text.push(' ');
    }
    text
}
