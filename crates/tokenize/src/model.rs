//! One model's tokenizer and chat template, loaded from a folder.

use std::path::Path;

use crate::{ChatRequest, Tokenized};

/// A tokenizer folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {field}: {problem}; {remedy}")]
pub struct LoadError {
    /// Path of the file.
    pub file: String,
    /// The field in it.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// A prompt that cannot be tokenized here; the next rung of the ladder may still know it.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The chat template failed or refused the conversation.
    #[error("chat template: {0}")]
    Template(String),
    /// The tokenizer failed.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}

/// Tokenizer, chat template and segment cache of one model. Cheap to share behind an `Arc`; every
/// method takes `&self`, blocks (no await) and may run on many threads.
pub struct ModelTokenizer {}

impl ModelTokenizer {
    /// Loads `tokenizer.json`, `tokenizer_config.json` and, where present, `chat_template.jinja` or
    /// `chat_template.json` from `dir`. Never touches the network.
    pub fn load(dir: &Path) -> Result<Self, LoadError> {
        Err(LoadError { file: dir.display().to_string(), field: String::new(), problem: String::new(), remedy: String::new() })
    }

    /// Ids of a plain prompt (`/v1/completions`; there vLLM adds special tokens by default).
    pub fn encode_text(&self, _text: &str, _add_special_tokens: bool) -> Result<Tokenized, EncodeError> {
        Err(EncodeError::Tokenizer(String::new()))
    }

    /// Ids of a chat prompt.
    pub fn encode_chat(&self, _chat: &ChatRequest) -> Result<Tokenized, EncodeError> {
        Err(EncodeError::Template(String::new()))
    }
}
