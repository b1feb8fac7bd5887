//! What a client asked for: its headers and body, read as far as placing it needs.

mod fields;
mod generate;
mod head;
mod parse;
mod prompts;
pub mod subset;

use bytes::Bytes;
use lmetric_scheduler::Subset;
use lmetric_tokenize::{ChatRequest, Tokenized};

pub use head::Head;
pub(crate) use head::text;
pub use parse::{Asked, read};

/// Which API the request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// OpenAI `/v1/chat/completions`.
    Chat,
    /// OpenAI `/v1/completions`.
    Completions,
    /// OpenAI `/v1/responses`.
    Responses,
    /// OpenAI `/v1/embeddings`.
    Embeddings,
    /// Anthropic `/v1/messages`.
    Messages,
    /// vLLM `/inference/v1/generate`.
    Generate,
    /// Anything else: placed by load.
    Other,
}

/// One distinct prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptInput {
    /// To be tokenized as it is.
    Text {
        /// The text.
        text: String,
        /// Whether the tokenizer adds its own special tokens.
        add_special_tokens: bool,
    },
    /// Token ids.
    Tokens(Tokenized),
    /// To be rendered by the model's chat template.
    Chat(Box<ChatRequest>),
}

/// A request, ready to be placed.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedRequest {
    /// The client's `x-request-id`, or one of our own.
    pub request_id: String,
    /// Which API.
    pub kind: RequestKind,
    /// Path without query, as the client sent it; empty when the gateway does not say.
    pub path: String,
    /// Model or LoRA adapter asked for.
    pub model: Option<String>,
    /// Distinct prompts, in order. Empty: placed by load only.
    pub prompts: Vec<PromptInput>,
    /// Prompts, repetitions counted.
    pub prompt_count: u32,
    /// Answers asked for each prompt (`n`), at least 1.
    pub n: u32,
    /// The answer will be server-sent events.
    pub stream: bool,
    /// `cache_salt`: keeps the KV entries of its users apart.
    pub cache_salt: Option<String>,
    /// Hash of the session.
    pub session: Option<u64>,
    /// The engine will announce reused blocks again (`kv_cache_report_mode`).
    pub report_mode: bool,
    /// Images, videos and audio clips in the prompts.
    pub images: u32,
    /// The gateway's subset hint.
    pub subset: Option<Subset>,
    /// The whole body, for the engine's own `render`; empty when the picker does not see it.
    pub body: Bytes,
}

impl ParsedRequest {
    /// Engine requests that this HTTP request becomes (`w`): prompts × n, at least 1.
    pub fn weight(&self) -> u32 {
        self.prompt_count.saturating_mul(self.n).max(1)
    }
}
