//! Tool definitions as the engine hands them to the template.
//!
//! vLLM parses a tool and dumps it again, so that the template sees the known fields only, in
//! their order, and `description` and `parameters` even where the client sent none.

use serde_json::{Map, Value, json};

/// One OpenAI tool (`{"type": "function", "function": {…}}`) as the template sees it; `None` if it is none.
pub(crate) fn normalized(tool: &Value) -> Option<Value> {
    let function = tool.get("function")?.as_object()?;
    let deferred = tool.get("defer_loading").filter(|deferred| !deferred.is_null());
    let mut function = fields(function)?;
    if let Some(deferred) = deferred {
        function
            .entry("defer_loading")
            .or_insert_with(|| deferred.clone());
    }
    let mut out = json!({"type": "function", "function": function});
    if let Some(deferred) = deferred {
        out["defer_loading"] = deferred.clone();
    }
    Some(out)
}

/// A flat function definition (Responses, Anthropic after renaming) as an OpenAI tool.
pub(crate) fn from_flat(function: &Map<String, Value>) -> Option<Value> {
    Some(json!({"type": "function", "function": fields(function)?}))
}

fn fields(function: &Map<String, Value>) -> Option<Map<String, Value>> {
    let get = |name: &str| function.get(name).cloned();
    let mut out = Map::new();
    out.insert("name".to_owned(), get("name").filter(Value::is_string)?);
    out.insert(
        "description".to_owned(),
        get("description").unwrap_or(Value::Null),
    );
    out.insert("parameters".to_owned(), get("parameters").unwrap_or(Value::Null));
    for name in ["strict", "defer_loading"] {
        if let Some(value) = get(name).filter(|value| !value.is_null()) {
            out.insert(name.to_owned(), value);
        }
    }
    Some(out)
}
