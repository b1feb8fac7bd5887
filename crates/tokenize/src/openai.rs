//! `/v1/chat/completions`.

use serde_json::{Map, Value};

use crate::{ChatError, ChatRequest, Messages};

/// The request without its `messages` is `body`.
pub(crate) fn request(
    messages: Option<Messages>,
    body: &mut Map<String, Value>,
) -> Result<ChatRequest, ChatError> {
    let messages = match messages {
        Some(Messages::List(messages)) => messages,
        None | Some(Messages::Null) => return Err(ChatError::Missing("messages")),
        Some(Messages::Other) => return Err(ChatError::wrong_type("messages", "a list of messages")),
    };
    for (at, message) in messages.iter().enumerate() {
        if message.role().is_none() {
            return Err(ChatError::wrong_type(
                format!("messages[{at}]"),
                "an object with a `role`",
            ));
        }
    }
    let add_generation_prompt = flag(body, "add_generation_prompt")?;
    let continue_final_message = flag(body, "continue_final_message")?.unwrap_or(false);
    if continue_final_message && add_generation_prompt == Some(true) {
        return Err(ChatError::Invalid(
            "cannot set both `continue_final_message` and `add_generation_prompt` to true".to_owned(),
        ));
    }
    let mut chat_template_kwargs = object(body, "chat_template_kwargs")?.unwrap_or_default();
    let effort = body.get("reasoning_effort").cloned();
    set_effort(&mut chat_template_kwargs, effort);
    Ok(ChatRequest {
        messages,
        tools: list(body, "tools", "a list of tools")?,
        documents: list(body, "documents", "a list of documents")?,
        chat_template: text(body, "chat_template")?,
        chat_template_kwargs,
        add_generation_prompt: add_generation_prompt.unwrap_or(true),
        continue_final_message,
        add_special_tokens: flag(body, "add_special_tokens")?.unwrap_or(false),
        ..ChatRequest::default()
    })
}

/// A wish for reasoning reaches the template twice: as it is, and as "thinking or not" for
/// templates that must be told.
pub(crate) fn set_effort(kwargs: &mut Map<String, Value>, effort: Option<Value>) {
    let Some(effort) = effort.filter(|effort| !effort.is_null()) else {
        return;
    };
    if !kwargs.contains_key("enable_thinking") {
        kwargs.insert("enable_thinking".to_owned(), Value::Bool(effort != "none"));
    }
    if effort != "auto" {
        kwargs.insert("reasoning_effort".to_owned(), effort);
    }
}

pub(crate) fn flag(body: &mut Map<String, Value>, field: &'static str) -> Result<Option<bool>, ChatError> {
    match body.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(ChatError::wrong_type(field, "true or false")),
    }
}

pub(crate) fn text(body: &mut Map<String, Value>, field: &'static str) -> Result<Option<String>, ChatError> {
    match body.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ChatError::wrong_type(field, "a string")),
    }
}

pub(crate) fn object(
    body: &mut Map<String, Value>,
    field: &'static str,
) -> Result<Option<Map<String, Value>>, ChatError> {
    match body.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(ChatError::wrong_type(field, "an object")),
    }
}

pub(crate) fn list(
    body: &mut Map<String, Value>,
    field: &'static str,
    expected: &'static str,
) -> Result<Option<Vec<Value>>, ChatError> {
    match body.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(_) => Err(ChatError::wrong_type(field, expected)),
    }
}
