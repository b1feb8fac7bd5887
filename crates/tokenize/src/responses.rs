//! `/v1/responses`, converted to chat as vLLM does it for models with a chat template.

use serde_json::{Map, Value, json};

use crate::openai::{list, object, set_effort, text};
use crate::tools;
use crate::{ChatError, ChatRequest, Message};

pub(crate) fn request(body: &mut Map<String, Value>) -> Result<ChatRequest, ChatError> {
    for (field, what) in [
        ("previous_response_id", "an earlier response"),
        ("conversation", "a stored conversation"),
        ("prompt", "a stored prompt"),
        ("previous_input_messages", "earlier input messages"),
    ] {
        if body.get(field).is_some_and(|value| !value.is_null()) {
            return Err(ChatError::EngineOnly(what));
        }
    }
    let mut messages = Vec::new();
    if let Some(instructions) = text(body, "instructions")?.filter(|text| !text.is_empty()) {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    let mut unfinished = false;
    match body.remove("input") {
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) => {
            unfinished = items.last().is_some_and(is_unfinished);
            let first = messages.len();
            for (at, item) in items.into_iter().enumerate() {
                add(item, at, first, &mut messages)?;
            }
        }
        None | Some(Value::Null) => return Err(ChatError::Missing("input")),
        Some(_) => return Err(ChatError::wrong_type("input", "a string or a list of items")),
    }
    let mut kwargs = object(body, "chat_template_kwargs")?.unwrap_or_default();
    set_effort(
        &mut kwargs,
        body.get("reasoning")
            .and_then(|reasoning| reasoning.get("effort"))
            .cloned(),
    );
    Ok(ChatRequest {
        messages: messages.into_iter().map(Message::from).collect(),
        tools: tool_list(body)?,
        chat_template_kwargs: kwargs,
        add_generation_prompt: !unfinished,
        continue_final_message: unfinished,
        // unlike chat, this endpoint of the engine leaves the tokenizer's default on
        add_special_tokens: true,
        ..ChatRequest::default()
    })
}

/// Whether the last item is a message that the model is to go on with.
fn is_unfinished(item: &Value) -> bool {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    let status = item.get("status").and_then(Value::as_str).unwrap_or_default();
    matches!(kind, "message" | "reasoning") && matches!(status, "in_progress" | "incomplete")
}

/// Appends one input item; what an assistant did in several items (reasoning, text, calls) is one
/// message. `first` is where the input begins in `messages`.
fn add(item: Value, at: usize, first: usize, messages: &mut Vec<Value>) -> Result<(), ChatError> {
    let Value::Object(mut item) = item else {
        return Err(ChatError::wrong_type(format!("input[{at}]"), "an object"));
    };
    let kind = item
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("message")
        .to_owned();
    let take = |item: &mut Map<String, Value>, field: &str| item.remove(field).unwrap_or_else(|| "".into());
    match kind.as_str() {
        "function_call" => {
            let name = match (
                item.get("namespace").and_then(Value::as_str),
                take(&mut item.clone(), "name"),
            ) {
                (Some(space), Value::String(name)) if !space.is_empty() => format!("{space}__{name}").into(),
                (_, name) => name,
            };
            let call = json!({
                "id": take(&mut item, "call_id"),
                "function": {"arguments": take(&mut item, "arguments"), "name": name},
                "type": "function",
            });
            match assistant(messages, first) {
                Some(previous) => match previous.entry("tool_calls").or_insert_with(|| json!([])) {
                    Value::Array(calls) => calls.push(call),
                    _ => {
                        return Err(ChatError::wrong_type(
                            format!("input[{}].tool_calls", at - 1),
                            "a list",
                        ));
                    }
                },
                None => messages.push(json!({"role": "assistant", "tool_calls": [call]})),
            }
        }
        "function_call_output" => {
            let output = take(&mut item, "output");
            let id = take(&mut item, "call_id");
            messages.push(json!({"role": "tool", "content": output, "tool_call_id": id}));
        }
        "reasoning" => {
            if item
                .get("encrypted_content")
                .is_some_and(|content| content.as_str().is_some_and(|text| !text.is_empty()))
            {
                return Err(ChatError::Invalid(
                    "encrypted reasoning is not supported".to_owned(),
                ));
            }
            let text = ["content", "summary"]
                .iter()
                .find_map(|field| first_text(item.get(*field)?));
            assistant_field(messages, first, "reasoning", text.unwrap_or_default());
        }
        "message" if item.get("role").is_some_and(|role| role == "assistant") => {
            let text = match item.get("content") {
                Some(Value::String(text)) => Some(text.clone()),
                Some(parts) => first_text(parts),
                None => None,
            };
            match text {
                Some(text) => assistant_field(messages, first, "content", text),
                None => messages.push(Value::Object(item)),
            }
        }
        "message" if item.get("role").is_some_and(Value::is_string) => messages.push(Value::Object(item)),
        "message" => return Err(ChatError::wrong_type(format!("input[{at}].role"), "a string")),
        _ => return Err(ChatError::EngineOnly("an input item of this type")),
    }
    Ok(())
}

fn first_text(parts: &Value) -> Option<String> {
    Some(parts.as_array()?.first()?.get("text")?.as_str()?.to_owned())
}

/// The last message if it is the assistant's and came from this input.
fn assistant(messages: &mut [Value], first: usize) -> Option<&mut Map<String, Value>> {
    let last = messages[first..].last_mut()?.as_object_mut()?;
    last.get("role")
        .is_some_and(|role| role == "assistant")
        .then_some(last)
}

/// Sets a field of the assistant's open message, or opens another.
fn assistant_field(messages: &mut Vec<Value>, first: usize, field: &str, text: String) {
    match assistant(messages, first) {
        Some(open) if open.get(field).is_none_or(Value::is_null) => {
            open.insert(field.to_owned(), text.into());
        }
        _ => messages.push(json!({"role": "assistant", field: text})),
    }
}

fn tool_list(body: &mut Map<String, Value>) -> Result<Option<Vec<Value>>, ChatError> {
    let Some(list) = list(body, "tools", "a list of tools")?.filter(|list| !list.is_empty()) else {
        return Ok(None);
    };
    let bad = |at: usize| ChatError::wrong_type(format!("tools[{at}]"), "a tool with a `type` and a `name`");
    let mut out = Vec::with_capacity(list.len());
    for (at, tool) in list.iter().enumerate() {
        let tool = tool.as_object().ok_or_else(|| bad(at))?;
        match tool.get("type").and_then(Value::as_str) {
            Some("function") => out.push(tools::from_flat(tool).ok_or_else(|| bad(at))?),
            Some("namespace") => {
                let space = tool.get("name").and_then(Value::as_str).ok_or_else(|| bad(at))?;
                let inner = tool
                    .get("tools")
                    .and_then(Value::as_array)
                    .ok_or_else(|| bad(at))?;
                for function in inner
                    .iter()
                    .filter(|tool| tool.get("type").is_some_and(|kind| kind == "function"))
                {
                    let mut function = function.as_object().cloned().ok_or_else(|| bad(at))?;
                    let name = function
                        .get("name")
                        .and_then(Value::as_str)
                        .ok_or_else(|| bad(at))?;
                    let name = format!("{space}__{name}");
                    function.insert("name".to_owned(), name.into());
                    out.push(tools::from_flat(&function).ok_or_else(|| bad(at))?);
                }
            }
            Some("custom") => return Err(ChatError::EngineOnly("a custom tool")),
            Some(_) => {} // built-in tools are not shown to the model
            None => return Err(bad(at)),
        }
    }
    Ok(Some(out))
}
