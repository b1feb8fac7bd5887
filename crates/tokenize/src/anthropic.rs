//! Anthropic's `/v1/messages`, converted to chat as vLLM does it.

use serde_json::{Map, Value, json};

use crate::conversation::BILLING_HEADER;
use crate::openai::{list, object, set_effort};
use crate::tools;
use crate::values::value;
use crate::{ChatError, ChatRequest, Message};

pub(crate) fn request(body: &mut Map<String, Value>) -> Result<ChatRequest, ChatError> {
    let Some(messages) = list(body, "messages", "a list of messages")? else {
        return Err(ChatError::Missing("messages"));
    };
    let mut out = Vec::with_capacity(messages.len() + 1);
    let system = body.remove("system").as_ref().and_then(system_text);
    if let Some(text) = system.filter(|text| !text.is_empty()) {
        out.push(json!({"role": "system", "content": text}));
    }
    for (at, message) in messages.into_iter().enumerate() {
        convert(message, at, &mut out)?;
    }
    let mut kwargs = object(body, "chat_template_kwargs")?.unwrap_or_default();
    let thinking = body.get("thinking").and_then(|thinking| thinking.get("type"));
    let thinking_disabled = thinking.is_some_and(|kind| kind == "disabled");
    if !thinking_disabled {
        set_effort(
            &mut kwargs,
            body.get("output_config")
                .and_then(|config| config.get("effort"))
                .cloned(),
        );
    }
    Ok(ChatRequest {
        messages: out.into_iter().map(Message::from).collect(),
        tools: tool_list(body)?,
        chat_template_kwargs: kwargs,
        thinking_disabled,
        merge_inline_system: true,
        ..ChatRequest::default()
    })
}

/// Text blocks put together, without Claude Code's attribution (its hash changes on every request).
fn system_text(content: &Value) -> Option<String> {
    let kept = |text: &&str| !text.starts_with(BILLING_HEADER);
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(blocks) => {
            let texts = blocks
                .iter()
                .filter(|block| block.get("type").is_some_and(|kind| kind == "text"));
            Some(
                texts
                    .filter_map(|block| block.get("text")?.as_str())
                    .filter(kept)
                    .collect(),
            )
        }
        _ => None,
    }
}

fn convert(message: Value, at: usize, out: &mut Vec<Value>) -> Result<(), ChatError> {
    let Value::Object(mut message) = message else {
        return Err(ChatError::wrong_type(format!("messages[{at}]"), "an object"));
    };
    let Some(Value::String(role)) = message.remove("role") else {
        return Err(ChatError::wrong_type(format!("messages[{at}].role"), "a string"));
    };
    let content = message.remove("content").unwrap_or(Value::Null);
    let blocks = content.as_array().into_iter().flatten();
    let mut kinds = blocks.filter_map(|block| block.get("type")?.as_str());
    if kinds.any(|kind| matches!(kind, "tool_addition" | "tool_removal")) {
        return Err(ChatError::EngineOnly("a change of tools within the conversation"));
    }
    if role == "system" {
        let text = system_text(&content).filter(|text| !text.is_empty() && !text.starts_with(BILLING_HEADER));
        if let Some(text) = text {
            out.push(json!({"role": "system", "content": text}));
        }
        return Ok(());
    }
    let blocks = match content {
        Value::String(text) => {
            out.push(json!({"role": role, "content": text}));
            return Ok(());
        }
        Value::Array(blocks) => blocks,
        _ => {
            return Err(ChatError::wrong_type(
                format!("messages[{at}].content"),
                "a string or a list of blocks",
            ));
        }
    };
    let mut turn = Turn::default();
    for block in blocks {
        turn.add(block, &role, out);
    }
    out.extend(turn.into_message(&role));
    Ok(())
}

/// What the blocks of one message add up to.
#[derive(Default)]
struct Turn {
    content: Vec<Value>,
    tool_calls: Vec<Value>,
    reasoning: Option<String>,
}

impl Turn {
    fn add(&mut self, block: Value, role: &str, out: &mut Vec<Value>) {
        let Value::Object(mut block) = block else { return };
        let text_of = |block: &Map<String, Value>, field: &str| {
            block
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                if let Some(Value::String(text)) = block.remove("text")
                    && !text.is_empty()
                {
                    self.content.push(json!({"type": "text", "text": text}));
                }
            }
            "image" => {
                if let Some(source) = block.get("source") {
                    self.content.push(image(source));
                }
            }
            "thinking" => {
                if let Some(Value::String(thinking)) = block.remove("thinking") {
                    self.reasoning.get_or_insert_default().push_str(&thinking);
                }
            }
            "tool_use" => {
                let input = block
                    .remove("input")
                    .filter(Value::is_object)
                    .unwrap_or_else(|| json!({}));
                self.tool_calls.push(json!({
                    "id": text_of(&block, "id"),
                    "type": "function",
                    "function": {"name": text_of(&block, "name"), "arguments": input},
                }));
            }
            "tool_result" if role == "user" => {
                tool_result(&text_of(&block, "tool_use_id"), block.get("content"), out);
            }
            "tool_result" => {
                let text = match block.get("content") {
                    Some(Value::String(text)) => text.clone(),
                    // Python's `str` of the list, which is how template values print
                    Some(list @ Value::Array(items)) if !items.is_empty() => value(list).to_string(),
                    _ => String::new(),
                };
                self.content
                    .push(json!({"type": "text", "text": format!("Tool result: {text}")}));
            }
            _ => {}
        }
    }

    fn into_message(self, role: &str) -> Option<Value> {
        let Self {
            content,
            tool_calls,
            reasoning,
        } = self;
        let mut message = Map::new();
        message.insert("role".to_owned(), role.into());
        if let Some(text) = reasoning {
            message.insert("reasoning".to_owned(), text.into());
        }
        if !tool_calls.is_empty() {
            message.insert("tool_calls".to_owned(), tool_calls.into());
        }
        let has_content = !content.is_empty();
        if has_content {
            let content = match content.as_slice() {
                [only] if only["type"] == "text" => only["text"].clone(),
                _ => content.into(),
            };
            message.insert("content".to_owned(), content);
        }
        // a user's turn without content was all tool results; an assistant's is kept even if empty
        (role != "user" || has_content).then_some(Value::Object(message))
    }
}

fn image(source: &Value) -> Value {
    let text = |field: &str, default: &'static str| {
        source
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or(default)
            .to_owned()
    };
    let url = if source.get("type").is_some_and(|kind| kind == "url") {
        text("url", "")
    } else {
        format!(
            "data:{};base64,{}",
            text("media_type", "image/jpeg"),
            text("data", "")
        )
    };
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// A result becomes a message of role `tool`; its images follow in a user's message, its tool
/// references in one more of role `tool`.
fn tool_result(id: &str, content: Option<&Value>, out: &mut Vec<Value>) {
    let mut texts = Vec::new();
    let mut images = Vec::new();
    let mut references = Vec::new();
    match content {
        Some(Value::String(text)) => texts.push(text.as_str()),
        Some(Value::Array(items)) => {
            for item in items {
                match item.get("type").and_then(Value::as_str).unwrap_or_default() {
                    "text" => texts.push(item.get("text").and_then(Value::as_str).unwrap_or_default()),
                    "image" => images.extend(item.get("source").map(image)),
                    "tool_reference" => {
                        let name = ["tool_name", "name"]
                            .iter()
                            .find_map(|field| item.get(*field)?.as_str());
                        references.extend(name.map(|name| json!({"type": "tool_reference", "name": name})));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    out.push(json!({"role": "tool", "tool_call_id": id, "content": texts.join("\n")}));
    if !images.is_empty() {
        out.push(json!({"role": "user", "content": images}));
    }
    if !references.is_empty() {
        out.push(json!({"role": "tool", "tool_call_id": id, "content": references}));
    }
}

fn tool_list(body: &mut Map<String, Value>) -> Result<Option<Vec<Value>>, ChatError> {
    let Some(list) = list(body, "tools", "a list of tools")? else {
        return Ok(None);
    };
    let convert = |(at, tool): (usize, Value)| {
        let bad =
            || ChatError::wrong_type(format!("tools[{at}]"), "an object with `name` and `input_schema`");
        let Value::Object(mut tool) = tool else {
            return Err(bad());
        };
        let Some(Value::Object(mut schema)) = tool.remove("input_schema") else {
            return Err(bad());
        };
        schema.entry("type").or_insert_with(|| "object".into());
        tool.insert("parameters".to_owned(), schema.into());
        tools::from_flat(&tool).ok_or_else(bad)
    };
    list.into_iter()
        .enumerate()
        .map(convert)
        .collect::<Result<_, _>>()
        .map(Some)
}
