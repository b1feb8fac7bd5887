//! What vLLM does to messages before the template sees them.

use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object};
use serde_json::{Map, Value as Json};

use crate::content::{Content, PartOut, Text};
use crate::message::Message as Sent;
use crate::template::ContentFormat;
use crate::values::value;

/// Stands in for media in the second rendering that finds where they are. Starts with a character
/// that no template writes.
pub(crate) const MEDIA_MARK: &str = "\u{1}media\u{1}";

/// The mark that finds where the last message ends, as `transformers` names it.
const CONTINUE_MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Claude Code's attribution line starts so.
pub(crate) const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// How to treat messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) format: ContentFormat,
    /// Whether the template knows the `developer` role; otherwise it becomes `system`.
    pub(crate) developer: bool,
    /// Whether system messages are put together at the front.
    pub(crate) merge_system: bool,
    /// Whether media are replaced by [`MEDIA_MARK`].
    pub(crate) mark_media: bool,
    /// Whether the last message is to be continued.
    pub(crate) continue_final: bool,
}

/// A conversation that no template would take.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConversationError {
    #[error("`messages[{0}]` must be an object with a `role`")]
    Message(usize),
    #[error("`messages[{0}].content` must be a string or a list of known parts")]
    Content(usize),
    #[error("`messages[{0}].tool_calls` must be functions")]
    ToolCalls(usize),
    #[error("there is no final message with text to continue")]
    NothingToContinue,
    #[error("the final message does not appear in the rendered chat")]
    FinalMessageLost,
}

/// A message on its way to the template.
struct Message<'a> {
    role: &'a str,
    content: Content<'a>,
    /// Fields after `content`, in vLLM's order.
    others: Vec<(&'static str, Value)>,
}

/// The messages as the template gets them.
pub(crate) fn conversation(messages: &[Sent], rules: Rules) -> Result<Value, ConversationError> {
    let mut parsed = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        parsed.push(Message::parse(message, at, rules)?);
    }
    let has_developer = parsed.iter().any(|message| message.role == "developer");
    if has_developer && !rules.developer {
        for message in parsed.iter_mut().filter(|message| message.role == "developer") {
            message.role = "system";
            message.others.retain(|(name, _)| *name != "tools");
        }
        parsed = merge_system(parsed, "\n\n", false);
    }
    if rules.merge_system {
        parsed = merge_system(parsed, "", true);
    }
    if rules.continue_final {
        let last = parsed.last_mut().ok_or(ConversationError::NothingToContinue)?;
        last.mark_end()?;
    }
    Ok(parsed.into_iter().map(Message::into_value).collect())
}

/// Cuts a rendered chat where its last message ends, as `transformers` does.
pub(crate) fn cut_at_final_message(
    mut rendered: String,
    messages: &[Sent],
) -> Result<String, ConversationError> {
    let mark = CONTINUE_MARK.trim_end();
    let lost = || ConversationError::FinalMessageLost;
    let at = rendered.rfind(mark).ok_or_else(lost)?;
    let kept_space = rendered[at..].starts_with(CONTINUE_MARK);
    if let Some(text) = messages.last().and_then(final_text)
        && !rendered.contains(text.trim())
    {
        return Err(lost());
    }
    rendered.truncate(at);
    if !kept_space {
        rendered.truncate(rendered.trim_end().len());
    }
    Ok(rendered)
}

fn final_text(message: &Sent) -> Option<&str> {
    if let Some(text) = message.text() {
        return Some(text);
    }
    let parts = message.get("content")?.as_array()?;
    parts.iter().rev().find_map(|part| part.get("text")?.as_str())
}

impl<'a> Message<'a> {
    fn parse(fields: &'a Sent, at: usize, rules: Rules) -> Result<Self, ConversationError> {
        let role = fields.role().ok_or(ConversationError::Message(at))?;
        let mut content = Content::parse(role, fields, rules).ok_or(ConversationError::Content(at))?;
        let mut others = Vec::new();
        match role {
            "assistant" => {
                if let Some(calls) = fields.get("tool_calls").filter(|calls| !calls.is_null()) {
                    let calls = tool_calls(calls).ok_or(ConversationError::ToolCalls(at))?;
                    if !calls.is_empty() {
                        others.push(("tool_calls", Value::from(calls)));
                    }
                }
                let reasoning = ["reasoning", "reasoning_content"]
                    .into_iter()
                    .filter_map(|name| fields.get(name));
                if let Some(reasoning) = reasoning.into_iter().find(|reasoning| !reasoning.is_null()) {
                    others.push(("reasoning", value(reasoning)));
                    others.push(("reasoning_content", value(reasoning)));
                }
            }
            "tool" => {
                if let Some(id) = fields.get("tool_call_id") {
                    others.push(("tool_call_id", value(id)));
                }
                content.join_text();
            }
            _ => {}
        }
        for name in ["name", "task"] {
            if let Some(text) = fields.get(name).and_then(Json::as_str) {
                others.push((name, Value::from(text)));
            }
        }
        if role == "developer" {
            others.push(("tools", fields.get("tools").map_or(Value::from(()), value)));
        }
        Ok(Self {
            role,
            content,
            others,
        })
    }

    /// Appends the mark to the text that is to be continued.
    fn mark_end(&mut self) -> Result<(), ConversationError> {
        if self.content.push_str(CONTINUE_MARK) {
            Ok(())
        } else {
            Err(ConversationError::NothingToContinue)
        }
    }

    fn into_value(self) -> Value {
        let Self {
            role,
            content,
            others,
        } = self;
        let mut fields = Vec::with_capacity(2 + others.len());
        fields.push(("role", Value::from(role)));
        fields.push(("content", content.into_value()));
        fields.extend(others);
        Value::from_object(Fields(fields))
    }
}

/// A mapping of a few different names: a list is read faster than a hash table, and made faster.
#[derive(Debug)]
struct Fields(Vec<(&'static str, Value)>);

impl Object for Fields {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let found = self.0.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| Value::from(*name)).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Claude Code's attribution line changes on every request; the engine drops it. `None`: nothing is left.
pub(crate) fn without_billing(text: &str) -> Option<&str> {
    if !text.starts_with(BILLING_HEADER) {
        return Some(text);
    }
    text.split_once('\n')
        .map(|(_, rest)| rest)
        .filter(|rest| !rest.is_empty())
}

/// One system message at the front, unless the only one is there already.
fn merge_system<'a>(messages: Vec<Message<'a>>, separator: &str, keep_empty: bool) -> Vec<Message<'a>> {
    let is_system = |message: &Message<'_>| message.role == "system";
    let at_front = messages.first().is_some_and(is_system);
    let count = messages.iter().filter(|message| is_system(message)).count();
    if count == 0 || (count == 1 && at_front) {
        return messages;
    }
    let (system, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_system);
    let texts = system.iter().map(|message| message.content.text());
    let text = texts
        .filter(|text| keep_empty || !text.is_empty())
        .collect::<Vec<_>>()
        .join(separator);
    let parts = matches!(
        system.first().map(|message| &message.content),
        Some(Content::Parts(_))
    );
    let content = if parts && keep_empty {
        Content::Parts(vec![PartOut::Text(Text::Made(text), None)])
    } else {
        Content::Text(Text::Made(text))
    };
    let merged = Message {
        role: "system",
        content,
        others: Vec::new(),
    };
    std::iter::once(merged).chain(others).collect()
}

/// Tool calls with their arguments parsed; `None` if one is no function.
fn tool_calls(calls: &Json) -> Option<Vec<Value>> {
    calls.as_array()?.iter().map(tool_call).collect()
}

/// The engine's validation puts the known fields first, in this order, and extra ones behind; a
/// template that dumps a whole call shows it.
fn tool_call(call: &Json) -> Option<Value> {
    let call = call.as_object()?;
    if call.get("type").is_some_and(|kind| kind != "function") {
        return None;
    }
    let function = call.get("function")?.as_object()?;
    let arguments = match function.get("arguments") {
        Some(parsed @ Json::Object(_)) => value(parsed),
        Some(Json::String(text)) => match serde_json::from_str::<Json>(text) {
            Ok(parsed @ Json::Object(_)) => value(&parsed),
            _ => empty(),
        },
        _ => empty(),
    };
    let given = function.contains_key("arguments");
    let mut entries = ordered(function, ["arguments", "name"], |name, item| {
        if name == "arguments" {
            arguments.clone()
        } else {
            value(item)
        }
    });
    if !given {
        entries.push((Value::from("arguments"), arguments));
    }
    let function = Value::from_pairs(entries);
    let call = ordered(call, ["id", "function", "type"], |name, item| {
        if name == "function" {
            function.clone()
        } else {
            value(item)
        }
    });
    Some(Value::from_pairs(call))
}

fn empty() -> Value {
    Value::from_pairs(std::iter::empty::<(Value, Value)>())
}

/// The entries of an object with `first` before everything else.
fn ordered<const N: usize>(
    object: &Map<String, Json>,
    first: [&str; N],
    each: impl Fn(&str, &Json) -> Value,
) -> Vec<(Value, Value)> {
    let known = first.iter().filter_map(|name| object.get_key_value(*name));
    let others = object.iter().filter(|(name, _)| !first.contains(&name.as_str()));
    known
        .chain(others)
        .map(|(name, item)| (Value::from(name.as_str()), each(name, item)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_looks_to_a_template_like_any_mapping() {
        let pairs = || {
            vec![
                ("role", Value::from("user")),
                ("content", Value::from("a text of more than twenty-two bytes")),
                ("list", Value::from(vec![1, 2])),
            ]
        };
        let mut environment = minijinja::Environment::new();
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        for source in [
            "{{ m }}",
            "{{ m.role }} {{ m['content'] }} {{ m.nothing is defined }} {{ m[0] is defined }}",
            "{{ m | tojson }}",
            "{% for key in m %}{{ key }},{% endfor %}",
            "{% for key, item in m | items %}{{ key }}={{ item }},{% endfor %}",
            "{% for key, item in m.items() %}{{ key }}={{ item }},{% endfor %}",
            "{{ m.keys() | list }} {{ m.values() | list }} {{ m.get('role') }} {{ m.get('x', 3) }}",
            "{{ m | length }} {{ m | dictsort }} {{ m | list }} {{ m | first }} {{ m | reverse | list }}",
            "{{ 'role' in m }} {{ 'x' in m }} {{ m is mapping }} {{ m is sequence }} {{ m is string }}",
            "{{ m == n }} {{ n == m }} {{ m == {'role': 'user'} }} {% if m %}true{% endif %}",
            "{{ [m, m] | map(attribute='role') | join }} {{ [m] | selectattr('role', 'equalto', 'user') | list }}",
            "{{ m.role() }}",
            "{{ m + m }}",
        ] {
            let render = |message: Value| {
                let context = [("m", message), ("n", Value::from_pairs(pairs()))];
                environment.render_str(source, Value::from_pairs(context)).ok()
            };
            let expected = render(Value::from_pairs(pairs()));
            assert_eq!(render(Value::from_object(Fields(pairs()))), expected, "{source}");
        }
    }
}
