//! JSON to template values.

use minijinja::Value;
use serde_json::Value as Json;

/// The template value of a JSON value; objects keep their order.
pub(crate) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => number
            .as_i64()
            .map(Value::from)
            .or_else(|| number.as_u64().map(Value::from))
            .or_else(|| number.as_f64().map(Value::from))
            .unwrap_or_default(),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(value).collect(),
        Json::Object(entries) => {
            Value::from_pairs(entries.iter().map(|(key, item)| (key.as_str(), value(item))))
        }
    }
}
