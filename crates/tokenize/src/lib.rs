//! Prompts to token ids, as the engine would: tokenizer, chat template, segment cache. No I/O but loading files.

mod anthropic;
mod chat;
mod model;
mod openai;
mod parts;
mod responses;
mod tokenized;

pub use chat::{ChatError, ChatRequest};
pub use model::{EncodeError, LoadError, ModelTokenizer};
pub use tokenized::{Media, Tokenized};
