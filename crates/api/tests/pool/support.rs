//! As much of the API server as a test of rules needs: defaults, structure, CEL.

use std::{fs, path::PathBuf};

use lmetric_api::pool;
use serde_json::Value;

/// Schema of the whole object.
pub(crate) fn schema() -> Value {
    let definition = objects(&pool::definition_yaml()).remove(0);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Calls `visit` with the path and schema of every field, items and values of maps included.
pub(crate) fn walk(schema: &Value, at: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(at, schema);
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        walk(schema, &format!("{at}.{name}"), visit);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(schema) = schema.get(key) {
            walk(schema, &format!("{at}{mark}"), visit);
        }
    }
}

/// This package's folder. Asked at run time: checkouts that share a target folder may share this program.
pub(crate) fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// Files of `testdata/{folder}`: name, text.
pub(crate) fn files(folder: &str) -> Vec<(String, String)> {
    let folder = package().join("testdata").join(folder);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("testdata")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("text"))
        })
        .collect();
    files.sort();
    files
}

/// Objects of a YAML text.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    use serde::Deserialize as _;
    serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).expect("YAML"))
        .collect()
}

/// What the API server would store, or everything that it would say against it.
pub(crate) fn admit(schema: &Value, object: &Value, old: Option<&Value>) -> Result<Value, Vec<String>> {
    let object = kube_cel::apply_defaults(schema, object);
    let mut said = Vec::new();
    structure(schema, &object, "", &mut said);
    if said.is_empty()
        && let Err(broken) = kube_cel::Validator::new().validate(schema, &object, old)
    {
        said.extend(broken.into_vec().into_iter().map(|error| error.to_string()));
    }
    if said.is_empty() { Ok(object) } else { Err(said) }
}

fn structure(schema: &Value, value: &Value, at: &str, said: &mut Vec<String>) {
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !fits {
        said.push(format!("{at}: Invalid value: must be of type {}", schema["type"]));
        return;
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        let words: Vec<_> = words.iter().map(Value::to_string).collect();
        said.push(format!(
            "{at}: Unsupported value: {value}: supported values: {}",
            words.join(", ")
        ));
    }
    if let Some(number) = value.as_i64() {
        bound(number, &schema["minimum"], &schema["maximum"], at, said);
    }
    if let Some(text) = value.as_str() {
        bound(
            text.chars().count() as i64,
            &schema["minLength"],
            &schema["maxLength"],
            at,
            said,
        );
    }
    if let Some(items) = value.as_array() {
        bound(
            items.len() as i64,
            &schema["minItems"],
            &schema["maxItems"],
            at,
            said,
        );
        let keys = schema["x-kubernetes-list-map-keys"].as_array();
        let identity = |item: &Value| match keys {
            Some(keys) => keys
                .iter()
                .filter_map(|key| item.get(key.as_str()?))
                .cloned()
                .collect(),
            None => vec![item.clone()],
        };
        let unique = keys.is_some() || schema["x-kubernetes-list-type"] == "set";
        for (index, item) in items.iter().enumerate() {
            let at = format!("{at}[{index}]");
            if unique
                && items[..index]
                    .iter()
                    .any(|earlier| identity(earlier) == identity(item))
            {
                said.push(format!("{at}: Duplicate value"));
            }
            structure(&schema["items"], item, &at, said);
        }
    }
    if let Some(fields) = value.as_object() {
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !fields.contains_key(name) {
                said.push(format!("{}: Required value", join(at, name)));
            }
        }
        let free = schema["x-kubernetes-preserve-unknown-fields"] == true;
        for (name, value) in fields {
            let at = join(at, name);
            if let Some(schema) = schema["properties"].get(name) {
                structure(schema, value, &at, said);
            } else if let Some(schema) = schema.get("additionalProperties") {
                structure(schema, value, &at, said);
            } else if !free && !matches!(at.split('.').next(), Some("metadata" | "apiVersion" | "kind")) {
                said.push(format!("{at}: unknown field"));
            }
        }
    }
}

fn bound(size: i64, least: &Value, most: &Value, at: &str, said: &mut Vec<String>) {
    let low = least.as_i64().is_some_and(|least| size < least);
    if low || most.as_i64().is_some_and(|most| size > most) {
        said.push(format!("{at}: Invalid value: out of bounds"));
    }
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() {
        name.to_owned()
    } else {
        format!("{at}.{name}")
    }
}
