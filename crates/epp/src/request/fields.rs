//! A JSON body as its top-level fields, each still raw: only what placing needs is parsed further, in place.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Raw values of the fields that some API uses. Of a repeated field the last counts, as for the engine.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    pub(super) model: Option<&'a RawValue>,
    pub(super) prompt: Option<&'a RawValue>,
    pub(super) input: Option<&'a RawValue>,
    pub(super) messages: Option<&'a RawValue>,
    pub(super) token_ids: Option<&'a RawValue>,
    pub(super) features: Option<&'a RawValue>,
    pub(super) sampling_params: Option<&'a RawValue>,
    pub(super) n: Option<&'a RawValue>,
    pub(super) stream: Option<&'a RawValue>,
    pub(super) add_special_tokens: Option<&'a RawValue>,
    pub(super) cache_salt: Option<&'a RawValue>,
    pub(super) prompt_cache_key: Option<&'a RawValue>,
    pub(super) vllm_xargs: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Fields::default();
                while let Some(Name(name)) = map.next_key()? {
                    let slot = match &*name {
                        "model" => &mut fields.model,
                        "prompt" => &mut fields.prompt,
                        "input" => &mut fields.input,
                        "messages" => &mut fields.messages,
                        "token_ids" => &mut fields.token_ids,
                        "features" => &mut fields.features,
                        "sampling_params" => &mut fields.sampling_params,
                        "n" => &mut fields.n,
                        "stream" => &mut fields.stream,
                        "add_special_tokens" => &mut fields.add_special_tokens,
                        "cache_salt" => &mut fields.cache_salt,
                        "prompt_cache_key" => &mut fields.prompt_cache_key,
                        "vllm_xargs" => &mut fields.vllm_xargs,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *slot = Some(map.next_value()?);
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A key, borrowed unless it holds escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The value as `T`; `None` when it is absent or of another type (the engine will say so to the client).
pub(super) fn as_type<'a, T: Deserialize<'a>>(value: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(value?.get()).ok()
}
