//! A chat prompt as the client asked for it, in OpenAI's shape, whatever API it came through.

use serde_json::{Map, Value};

use crate::message::{ChatBody, Message};

/// Everything in a request that decides which token ids the engine will see.
///
/// Messages are kept as the client sent them; what the engine does to them before the template
/// (content parts, tool-call arguments) happens in [`crate::ModelTokenizer::encode_chat`].
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// OpenAI messages, each with a role.
    pub messages: Vec<Message>,
    /// Tool definitions; `None` reaches the template as `none`, which is not an empty list.
    pub tools: Option<Vec<Value>>,
    /// Documents for retrieval-augmented templates.
    pub documents: Option<Vec<Value>>,
    /// A template of the request's own, or the name of one of the model's, instead of the default.
    pub chat_template: Option<String>,
    /// Further variables for the template. The named fields here win over equal names in it.
    pub chat_template_kwargs: Map<String, Value>,
    /// Whether the prompt ends with the opening of an assistant turn (default: true).
    pub add_generation_prompt: bool,
    /// Whether the last message is left open for the model to go on.
    pub continue_final_message: bool,
    /// Whether the tokenizer adds its own special tokens to the rendered text (default: false).
    pub add_special_tokens: bool,
    /// Whether system messages further down move to the front if the template refuses them there
    /// (Anthropic's API only; default: false).
    pub merge_inline_system: bool,
    /// Whether thinking was switched off in Anthropic's way; which `reasoning_effort` that is
    /// depends on the template (default: false).
    pub thinking_disabled: bool,
}

impl Default for ChatRequest {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            tools: None,
            documents: None,
            chat_template: None,
            chat_template_kwargs: Map::new(),
            add_generation_prompt: true,
            continue_final_message: false,
            add_special_tokens: false,
            merge_inline_system: false,
            thinking_disabled: false,
        }
    }
}

/// Why a body is no chat request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// A required field is absent. The client's mistake: status 400.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A field has the wrong JSON type. The client's mistake: status 400.
    #[error("`{field}` must be {expected}")]
    Type {
        /// Path of the field.
        field: String,
        /// What was expected, with its article.
        expected: &'static str,
    },
    /// The fields contradict each other. The client's mistake: status 400.
    #[error("{0}")]
    Invalid(String),
    /// Only the engine can know this prompt (an earlier response, a built-in tool). Not a mistake:
    /// the request goes on to the next rung of the token ladder.
    #[error("{0} is only known to the engine")]
    EngineOnly(&'static str),
}

impl ChatError {
    pub(crate) fn wrong_type(field: impl Into<String>, expected: &'static str) -> Self {
        Self::Type {
            field: field.into(),
            expected,
        }
    }
}

impl ChatRequest {
    /// Reads the body of `/v1/chat/completions`. What this request keeps is moved out of `body`,
    /// not copied; other fields stay.
    pub fn from_openai(body: &mut Map<String, Value>) -> Result<Self, ChatError> {
        let messages = body.remove("messages").map(Into::into);
        crate::openai::request(messages, body)
    }

    /// The same from a body that was read with its messages apart; faster.
    pub fn from_openai_body(body: &mut ChatBody) -> Result<Self, ChatError> {
        crate::openai::request(body.messages.take(), &mut body.fields)
    }

    /// Reads the body of Anthropic's `/v1/messages` as vLLM converts it. Fields that are kept are
    /// moved out of `body`.
    pub fn from_anthropic(body: &mut Map<String, Value>) -> Result<Self, ChatError> {
        crate::anthropic::request(body)
    }

    /// Reads the body of `/v1/responses` as far as it can be known without the engine's store of
    /// earlier responses. Fields that are kept are moved out of `body`.
    pub fn from_responses(body: &mut Map<String, Value>) -> Result<Self, ChatError> {
        crate::responses::request(body)
    }

    /// Content parts that are an image, a video or audio.
    pub fn images(&self) -> u32 {
        let parts = self
            .messages
            .iter()
            .filter_map(|message| message.get("content")?.as_array());
        parts
            .flatten()
            .filter(|part| crate::parts::is_media(part))
            .count() as u32
    }
}
