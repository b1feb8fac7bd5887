//! Asking an engine for ids: request bodies for `render` and `tokenize`, and what the answers mean.
//!
//! `render` (vLLM 0.16 on) applies everything that a real request would; `tokenize` is everywhere
//! but knows less. Only bodies are made here, no I/O.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::chat::ChatRequest;
use crate::tokenized::{Media, Tokenized};

/// A POST to an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Path on the engine.
    pub path: &'static str,
    /// JSON body.
    pub body: Vec<u8>,
}

/// An answer that holds no ids.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The body is not what any known version of the engine answers.
    #[error("the engine's answer is not understood: {0}")]
    Shape(#[from] serde_json::Error),
    /// The answer is about another number of prompts than were asked.
    #[error("the engine answered for {got} prompts instead of {asked}")]
    Count {
        /// Prompts in the question.
        asked: usize,
        /// Prompts in the answer.
        got: usize,
    },
    /// A placeholder lies outside the prompt.
    #[error("the engine's answer has a placeholder beyond the prompt")]
    Placeholder,
}

/// Asks `render` for a chat.
pub fn render_chat(model: &str, chat: &ChatRequest) -> Query {
    let mut body = chat_fields(model, chat);
    if let Some(documents) = &chat.documents {
        body.insert("documents".to_owned(), documents.clone().into());
    }
    // the layout and the identity of images is enough; their tensors are megabytes
    body.insert("mm_payload".to_owned(), "none".into());
    query("/v1/chat/completions/render", body)
}

/// Asks `render` for plain prompts, one answer each.
pub fn render_text(model: &str, prompts: &[&str], add_special_tokens: bool) -> Query {
    let body =
        json!({"model": model, "prompt": prompts, "add_special_tokens": add_special_tokens, "max_tokens": 1});
    Query {
        path: "/v1/completions/render",
        body: body.to_string().into_bytes(),
    }
}

/// Asks `tokenize` for a chat.
pub fn tokenize_chat(model: &str, chat: &ChatRequest) -> Query {
    query("/tokenize", chat_fields(model, chat))
}

/// Asks `tokenize` for a plain prompt.
pub fn tokenize_text(model: &str, prompt: &str, add_special_tokens: bool) -> Query {
    let body = json!({"model": model, "prompt": prompt, "add_special_tokens": add_special_tokens});
    Query {
        path: "/tokenize",
        body: body.to_string().into_bytes(),
    }
}

fn query(path: &'static str, body: Map<String, Value>) -> Query {
    Query {
        path,
        body: Value::Object(body).to_string().into_bytes(),
    }
}

fn chat_fields(model: &str, chat: &ChatRequest) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert(
        "messages".to_owned(),
        chat.messages.iter().map(Value::from).collect(),
    );
    body.insert(
        "add_generation_prompt".to_owned(),
        chat.add_generation_prompt.into(),
    );
    body.insert(
        "continue_final_message".to_owned(),
        chat.continue_final_message.into(),
    );
    body.insert("add_special_tokens".to_owned(), chat.add_special_tokens.into());
    if let Some(tools) = &chat.tools {
        body.insert("tools".to_owned(), tools.clone().into());
    }
    if let Some(template) = &chat.chat_template {
        body.insert("chat_template".to_owned(), template.as_str().into());
    }
    if !chat.chat_template_kwargs.is_empty() {
        body.insert(
            "chat_template_kwargs".to_owned(),
            chat.chat_template_kwargs.clone().into(),
        );
    }
    body
}

/// Reads what `render` answered for one chat.
pub fn read_render_chat(answer: &[u8]) -> Result<Tokenized, AnswerError> {
    if answer.trim_ascii_start().starts_with(b"{") {
        return serde_json::from_slice::<Rendered>(answer)?.tokenized();
    }
    // 0.16: [the conversation, [the prompt]]
    let (IgnoredAny, rendered) = serde_json::from_slice::<(IgnoredAny, Vec<Rendered>)>(answer)?;
    let [only]: [Rendered; 1] = rendered.try_into().map_err(|all: Vec<_>| AnswerError::Count {
        asked: 1,
        got: all.len(),
    })?;
    only.tokenized()
}

/// Reads what `render` answered for `asked` plain prompts.
pub fn read_render_text(answer: &[u8], asked: usize) -> Result<Vec<Tokenized>, AnswerError> {
    let rendered: Vec<Rendered> = serde_json::from_slice(answer)?;
    if rendered.len() != asked {
        return Err(AnswerError::Count {
            asked,
            got: rendered.len(),
        });
    }
    rendered.into_iter().map(Rendered::tokenized).collect()
}

/// Reads what `tokenize` answered.
pub fn read_tokenize(answer: &[u8]) -> Result<Tokenized, AnswerError> {
    #[derive(Deserialize)]
    struct Answer {
        tokens: Vec<u32>,
        #[serde(flatten)]
        _others: Others,
    }
    let Answer { tokens, _others } = serde_json::from_slice(answer)?;
    Ok(Tokenized::plain(tokens))
}

/// One prompt in an answer; 0.16 calls the ids otherwise.
#[derive(Deserialize)]
struct Rendered {
    #[serde(alias = "prompt_token_ids")]
    token_ids: Vec<u32>,
    #[serde(default)]
    features: Option<Features>,
    #[serde(flatten)]
    _others: Others,
}

/// Makes the decoder insist on an object: without it a list of values would do as well.
#[derive(Deserialize)]
struct Others {}

/// Media by modality; hashes and placeholders run in parallel.
#[derive(Deserialize)]
struct Features {
    #[serde(default)]
    mm_hashes: Map<String, Value>,
    #[serde(default)]
    mm_placeholders: Map<String, Value>,
}

#[derive(Deserialize)]
struct Placeholder {
    offset: usize,
    length: usize,
}

impl Rendered {
    fn tokenized(self) -> Result<Tokenized, AnswerError> {
        let Self {
            token_ids: ids,
            features,
            _others,
        } = self;
        let mut media = Vec::new();
        if let Some(Features {
            mm_hashes,
            mm_placeholders,
        }) = features
        {
            for (modality, placeholders) in mm_placeholders {
                let hashes = mm_hashes.get(&modality).and_then(Value::as_array);
                for (at, Placeholder { offset, length }) in
                    serde_json::from_value::<Vec<Placeholder>>(placeholders)?
                        .into_iter()
                        .enumerate()
                {
                    if offset.checked_add(length).is_none_or(|end| end > ids.len()) {
                        return Err(AnswerError::Placeholder);
                    }
                    let hash = hashes
                        .and_then(|hashes| hashes.get(at)?.as_str())
                        .map(str::to_owned);
                    media.push(Media { offset, length, hash });
                }
            }
        }
        media.sort_by_key(|media| media.offset);
        let unknown = media
            .iter()
            .find(|media| media.hash.is_none() || media.length == 0);
        let matchable = unknown.map_or(ids.len(), |media| media.offset);
        Ok(Tokenized {
            ids,
            media,
            matchable,
        })
    }
}
