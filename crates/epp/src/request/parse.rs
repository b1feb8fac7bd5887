//! From head and body to a [`ParsedRequest`].
//!
//! A body that is no JSON object is refused (the engine would, too). Everything else about a body is the engine's
//! to judge: what cannot be understood is placed by load and forwarded as it is.

use std::borrow::Cow;

use bytes::Bytes;
use lmetric_scheduler::Subset;
use lmetric_tokenize::{ChatBody, ChatRequest, Tokenized};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Head, ParsedRequest, PromptInput, RequestKind,
    fields::{Fields, as_type},
    generate::{self, ExtraArgs, SamplingParams},
    prompts,
};
use crate::refusal::Refusal;

/// More answers for one prompt than this are refused by every engine.
const MAX_N: f64 = 16_384.0;

/// Ends of paths; the first that fits counts.
const SUFFIXES: [(&str, RequestKind); 6] = [
    ("/chat/completions", RequestKind::Chat),
    ("/completions", RequestKind::Completions),
    ("/v1/responses", RequestKind::Responses),
    ("/embeddings", RequestKind::Embeddings),
    ("/v1/messages", RequestKind::Messages),
    ("/inference/v1/generate", RequestKind::Generate),
];

/// A request as the gateway handed it over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Its headers.
    pub head: Head,
    /// The gateway's subset hint.
    pub subset: Option<Subset>,
    /// Its whole body; empty when there is none or the picker does not see it.
    pub body: Bytes,
}

impl RequestKind {
    /// By the end of the path, so that a gateway may put something before it.
    pub fn of(path: &str) -> Self {
        let path = path.trim_end_matches('/');
        SUFFIXES
            .iter()
            .find(|(suffix, _)| path.ends_with(suffix))
            .map_or(Self::Other, |(_, kind)| *kind)
    }
}

/// Reads a request. O(body); a body of more than about 100 KB should not be read on an async thread.
pub fn read(asked: Asked) -> Result<ParsedRequest, Refusal> {
    let Asked { head, subset, body } = asked;
    let is_post = head
        .method
        .as_deref()
        .is_none_or(|method| method.eq_ignore_ascii_case("POST"));
    let kind = if is_post {
        RequestKind::of(&head.path)
    } else {
        RequestKind::Other
    };
    let mut request = ParsedRequest {
        request_id: head.request_id.unwrap_or_else(new_request_id),
        kind,
        path: head.path,
        model: None,
        prompts: Vec::new(),
        prompt_count: 1,
        n: 1,
        stream: false,
        cache_salt: None,
        session: head.session,
        report_mode: false,
        images: 0,
        subset,
        body: Bytes::new(),
    };
    if !body.is_empty() && !head.encoded {
        request.read_body(&body)?;
    }
    request.body = body;
    Ok(request)
}

impl ParsedRequest {
    fn read_body(&mut self, body: &[u8]) -> Result<(), Refusal> {
        match self.kind {
            RequestKind::Chat => self.read_conversation(whole(body)?),
            RequestKind::Responses | RequestKind::Messages => {
                let fields = whole(body)?;
                self.read_conversation(ChatBody {
                    messages: None,
                    fields,
                });
            }
            RequestKind::Completions => {
                let fields: Fields<'_> = whole(body)?;
                self.read_common(&fields);
                self.n = count(as_type(fields.n));
                let xargs: Option<ExtraArgs<'_>> = as_type(fields.vllm_xargs);
                self.report_mode = xargs.is_some_and(|args| args.asks_for_report());
                self.read_prompts(fields.prompt, &fields);
            }
            RequestKind::Embeddings => {
                let fields: Fields<'_> = whole(body)?;
                if fields.input.is_none() && fields.messages.is_some() {
                    self.read_conversation(whole(body)?);
                } else {
                    self.read_common(&fields);
                    self.read_prompts(fields.input, &fields);
                }
            }
            RequestKind::Generate => {
                let fields: Fields<'_> = whole(body)?;
                self.read_common(&fields);
                let sampling: SamplingParams<'_> = as_type(fields.sampling_params).unwrap_or_default();
                self.n = count(sampling.n);
                self.report_mode = sampling.extra_args.is_some_and(|args| args.asks_for_report());
                if let Some((prompt, images)) = generate::prompt(&fields) {
                    self.prompts.push(prompt);
                    self.images = images;
                }
            }
            // the model's name still tells who can serve it
            RequestKind::Other => {
                let fields = serde_json::from_slice(body).unwrap_or_default();
                self.read_common(&fields);
            }
        }
        Ok(())
    }

    fn read_common(&mut self, fields: &Fields<'_>) {
        self.model = named(as_type(fields.model));
        self.stream = as_type(fields.stream).unwrap_or(false);
        self.cache_salt = as_type(fields.cache_salt).filter(|salt: &String| !salt.is_empty());
        let key: Option<Cow<'_, str>> = as_type(fields.prompt_cache_key);
        self.read_session(key.as_deref());
    }

    fn read_prompts(&mut self, listed: Option<&RawValue>, fields: &Fields<'_>) {
        if let Some(value) = listed {
            let special = as_type(fields.add_special_tokens).unwrap_or(true);
            (self.prompts, self.prompt_count) = prompts::read(value, special);
        }
    }

    /// A header names the session better than the body does.
    fn read_session(&mut self, key: Option<&str>) {
        self.session = self.session.or_else(|| key.map(|key| xxh3_64(key.as_bytes())));
    }

    fn read_conversation(&mut self, mut asked: ChatBody) {
        let body = &asked.fields;
        let text = |field: &str| body.get(field).and_then(Value::as_str);
        let flag = |field: &str| body.get(field).and_then(Value::as_bool).unwrap_or(false);
        self.model = named(text("model").map(str::to_owned));
        self.cache_salt = text("cache_salt")
            .filter(|salt| !salt.is_empty())
            .map(str::to_owned);
        self.stream = flag("stream");
        self.read_session(text("prompt_cache_key"));
        if self.kind == RequestKind::Chat {
            self.n = count(body.get("n").and_then(Value::as_f64));
        }
        let inner = |outer: &str, field: &str| body.get(outer).and_then(|value| value.get(field));
        self.report_mode =
            inner("vllm_xargs", "kv_cache_report_mode").is_some_and(|mode| mode.as_str() == Some("full"));
        let echoes = flag("echo");
        let given = inner("kv_transfer_params", "prompt_token_ids")
            .and_then(|ids| Vec::<u32>::deserialize(ids).ok())
            .filter(|ids| !ids.is_empty());
        let conversation = match self.kind {
            RequestKind::Responses => ChatRequest::from_responses(&mut asked.fields),
            RequestKind::Messages => ChatRequest::from_anthropic(&mut asked.fields),
            _ => ChatRequest::from_openai_body(&mut asked),
        };
        let Ok(conversation) = conversation else {
            return;
        };
        self.images = conversation.images();
        // the engine takes the ids only of a conversation of plain text that it need not echo
        self.prompts.push(match given {
            Some(ids) if self.images == 0 && !echoes => PromptInput::Tokens(Tokenized::plain(ids)),
            _ => PromptInput::Chat(Box::new(conversation)),
        });
    }
}

fn whole<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    // checked once for all its strings, and several times as fast as they are checked one by one
    let parsed = match simdutf8::basic::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    parsed.map_err(|error| {
        let what = if error.is_data() {
            "must be a JSON object"
        } else {
            "is not valid JSON"
        };
        Refusal::bad_request(format!("The request body {what}: {error}."))
    })
}

/// An empty name is none: engines then take their own model.
fn named(model: Option<String>) -> Option<String> {
    model.filter(|name| !name.is_empty())
}

/// `n` as engines read it: a whole number, `2` or `2.0`.
fn count(n: Option<f64>) -> u32 {
    n.map_or(1, |n| n.clamp(1.0, MAX_N) as u32)
}

fn new_request_id() -> String {
    format!("lmetric-{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests;
