//! Parts of a pool that the API server stores as they are written, because their schema would fill the definition.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::schema;

/// A `T` of Kubernetes, kept as it was written and read when it is used, so that a slip in it spoils neither the
/// watch of all pools nor the rest of its own pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Loose<T> {
    written: Value,
    read_as: PhantomData<fn() -> T>,
}

/// Why a [`Loose`] part cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A value has the wrong type, or a required field is missing.
    #[error("does not fit: {0}")]
    Unfit(String),
    /// A key is not one that Kubernetes knows.
    #[error("holds {0}, which Kubernetes does not know; check its spelling")]
    UnknownKey(String),
}

impl<T> Loose<T> {
    /// Wraps what was written.
    pub fn new(written: Value) -> Self {
        Self {
            written,
            read_as: PhantomData,
        }
    }

    /// What was written.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        match &self.written {
            Value::Null => true,
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        }
    }
}

impl<T: DeserializeOwned + Serialize> Loose<T> {
    /// Reads it strictly: a key that reading would lose is an error that names it.
    pub fn read(&self) -> Result<T, Unreadable> {
        let read: T = serde_json::from_value(self.written.clone())
            .map_err(|error| Unreadable::Unfit(error.to_string()))?;
        let kept = serde_json::to_value(&read).map_err(|error| Unreadable::Unfit(error.to_string()))?;
        match lost(&self.written, &kept) {
            None => Ok(read),
            Some(path) => Err(Unreadable::UnknownKey(path)),
        }
    }
}

/// Path of the first key of `written` that is not in `kept`. Empty lists, maps and nulls may go.
fn lost(written: &Value, kept: &Value) -> Option<String> {
    match (written, kept) {
        (Value::Object(written), kept) => written.iter().find_map(|(key, value)| {
            let below = match kept.get(key) {
                Some(kept) => lost(value, kept)?,
                None if says_nothing(value) => return None,
                None => String::new(),
            };
            Some(match below.as_str() {
                "" => key.clone(),
                index if index.starts_with('[') => format!("{key}{index}"),
                below => format!("{key}.{below}"),
            })
        }),
        (Value::Array(written), Value::Array(kept)) => {
            written
                .iter()
                .zip(kept)
                .enumerate()
                .find_map(|(at, (written, kept))| {
                    lost(written, kept).map(|below| match below.as_str() {
                        "" => format!("[{at}]"),
                        below => format!("[{at}].{below}"),
                    })
                })
        }
        _ => None,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

impl<T> Default for Loose<T> {
    fn default() -> Self {
        Self::new(Value::Object(Map::new()))
    }
}

impl<T> Serialize for Loose<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(to)
    }
}

impl<'de, T> Deserialize<'de> for Loose<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(Self::new)
    }
}

impl<T> JsonSchema for Loose<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Loose".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::free_form(generator)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Affinity, PodTemplateSpec};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_misspelt_key_is_named_with_its_path() {
        let overlay = Loose::<PodTemplateSpec>::new(json!({"spec": {"containers": [
            {"name": "engine", "securityContext": {"privleged": true}},
        ]}}));
        assert_eq!(
            overlay.read(),
            Err(Unreadable::UnknownKey(
                "spec.containers[0].securityContext.privleged".to_owned()
            ))
        );
    }

    #[test]
    fn a_wrong_type_is_refused() {
        let affinity = Loose::<Affinity>::new(json!({"podAffinity": 3}));
        assert!(matches!(affinity.read(), Err(Unreadable::Unfit(_))));
    }

    #[test]
    fn what_says_nothing_may_be_lost() {
        let affinity = Loose::<Affinity>::new(json!({"podAffinity": null, "podAntiAffinity": {}}));
        assert!(affinity.read().is_ok());
        assert!(Loose::<Affinity>::default().is_empty());
    }
}
