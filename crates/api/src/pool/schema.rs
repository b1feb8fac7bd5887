//! Schemas that derive cannot write: Kubernetes' own types, quantities, maps and free-form parts, all bounded.
//!
//! The API server estimates what each CEL rule could cost at worst and refuses the whole definition when a list
//! or a string on its way has no bound. So everything here has one.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity, apis::meta::v1::Condition, util::intstr::IntOrString,
};
use kube::core::Rule;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value, json};

use super::{flags, refused};

/// Bounds of what comes from Kubernetes' own types, which have none.
const STRING: u64 = 8_192;
const LIST: u64 = 32;
const MAP: u64 = 32;

/// A list of at most `MAX` of Kubernetes' own `T`, with short descriptions.
pub(super) fn list<T: JsonSchema, const MAX: usize>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": MAX, "items": kubernetes::<T>()})
}

fn kubernetes<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
    }
    bound(&mut schema);
    schema
}

/// Gives a limit to everything that has none, and shortens descriptions to their first sentence.
fn bound(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::String(text)) = schema.get_mut("description")
        && let Some((first, _)) = text.split_once(". ")
    {
        *text = format!("{first}.");
    }
    if schema.contains_key("x-kubernetes-int-or-string") {
        default_limit(schema, "maxLength", 64);
    }
    let kind = schema.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("string") => default_limit(schema, "maxLength", STRING),
        Some("array") => default_limit(schema, "maxItems", LIST),
        Some("object") if schema.contains_key("additionalProperties") => {
            default_limit(schema, "maxProperties", MAP);
        }
        _ => {}
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(bound);
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get_mut(nested) {
            bound(schema);
        }
    }
}

fn default_limit(schema: &mut Map<String, Value>, name: &str, limit: u64) {
    schema.entry(name).or_insert(json!(limit));
}

/// Flags for the engine. The API server counts the cost of the pattern once for each byte of each item.
pub(super) fn args(_: &mut SchemaGenerator) -> Schema {
    let pattern = flags::pattern();
    let owned = json!({
        "rule": format!("!self.matches('{pattern}')"),
        "messageExpression": "self + ' is a flag that the operator sets; remove it and use its field (kubectl explain inferencepools.lmetric.io.spec)'",
    });
    let rules: Vec<_> = std::iter::once(owned)
        .chain(refused::flag_rules().into_iter().map(|rule| json!(rule)))
        .collect();
    json_schema!({
        "type": "array",
        "maxItems": 96,
        "items": {
            "type": "string",
            "maxLength": 1_024,
            "x-kubernetes-validations": rules,
        },
    })
}

/// A quantity as Kubernetes writes it: 16, 500m, 128Gi.
pub(super) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 32,
        "x-kubernetes-validations": [{
            "rule": "isQuantity(string(self))",
            "message": "is no quantity; write a number with an optional suffix, such as 16, 500m or 128Gi",
        }],
    })
}

/// A map from resource names to quantities.
pub(super) fn quantities(generator: &mut SchemaGenerator) -> Schema {
    let quantity = quantity(generator);
    json_schema!({"type": "object", "maxProperties": 16, "additionalProperties": quantity})
}

/// For the name of an object that may be absent.
pub(super) fn name_of(what: &str) -> Rule {
    Rule::new("self == '' || self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')").message(
        format!(
            "is no name of {what}; write lower-case letters, digits, dots and dashes, as kubectl get shows it"
        )
        .as_str(),
    )
}

/// A whole number, or a percentage as text.
pub(super) fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 8,
        "x-kubernetes-validations": [{
            "rule": "string(self).matches('^[0-9]+$') ? self == int(string(self)) : string(self).matches('^(100|[0-9]{1,2})%$')",
            "message": "is neither a count nor a percentage; write a number such as 1, or a percentage from \"0%\" to \"100%\"",
        }],
    })
}

/// Labels or annotations: short text under short keys.
pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 1024},
    })
}

/// An object that the API server stores as it is written.
pub(super) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The amount that `text` stands for.
pub(super) fn amount(text: &str) -> Quantity {
    Quantity(text.to_owned())
}

/// A count or percentage for which the rollout or disruption treats as none.
pub(super) fn is_zero(value: &IntOrString) -> bool {
    match value {
        IntOrString::Int(count) => *count == 0,
        IntOrString::String(text) => text.trim_end_matches('%').bytes().all(|digit| digit == b'0'),
    }
}

/// Conditions as Kubernetes defines them; a message may be long, since it tells a remedy.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    let mut item = kubernetes::<Condition>();
    item["properties"]["message"]["maxLength"] = json!(32_768);
    json_schema!({"type": "array", "maxItems": 16, "items": item})
}
