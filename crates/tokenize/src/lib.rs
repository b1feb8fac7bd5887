//! Prompts to token ids, as the engine would: tokenizer, chat template, segment cache. No I/O but loading files.

mod anthropic;
mod chat;
mod content;
mod conversation;
mod encode;
pub mod engine;
mod estimate;
mod load;
mod message;
mod model;
mod openai;
mod parts;
mod responses;
mod segments;
mod template;
mod templates;
mod tokenized;
mod tools;
mod values;

pub use chat::{ChatError, ChatRequest};
pub use encode::{Encode, Piece, Pipeline, TokenizerError};
pub use estimate::{BYTES_PER_TOKEN, estimate_chat, estimate_text};
pub use load::LoadError;
pub use message::{ChatBody, Message, Messages};
pub use model::{DEFAULT_CACHE_BYTES, EncodeError, ModelTokenizer, Options};
pub use template::{Clock, TemplateError};
pub use tokenized::{Media, Tokenized};
