//! The fields that decide what is generated, whatever API they come through.

use std::collections::HashMap;

use http::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use super::error::ApiError;
use crate::site::{Adapter, Settings};

/// Most choices that one request may ask for.
const CHOICES: u32 = 1024;
/// Most choices over all prompts of a request: each is a sequence of its own.
const SEQUENCES: usize = 8192;

/// A JSON body, its fields still unread.
pub(crate) struct Fields<'a>(HashMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        if body.is_empty() {
            return Err(ApiError::no_body());
        }
        let fields = serde_json::from_slice(body).map_err(|error| ApiError::not_json(error.column()))?;
        Ok(Self(fields))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The text of a field that is there and not null.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.0
            .get(name)
            .map(|raw| raw.get())
            .filter(|text| *text != "null")
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(text) = self.raw(name) else {
            return Ok(None);
        };
        serde_json::from_str(text).map(Some).map_err(|_| {
            let (kind, wanted) = expected::<T>();
            let shown: String = text.chars().take(80).collect();
            let message = format!("Input should be a valid {wanted}");
            ApiError::schema(kind, &format!("body.{name}"), &message, shown.trim_matches('"'))
        })
    }

    fn flag(&self, name: &str) -> Result<bool, ApiError> {
        Ok(self.get(name)?.unwrap_or(false))
    }

    /// A field of an object field.
    fn inner<T: DeserializeOwned>(&self, object: &str, name: &str) -> Result<Option<T>, ApiError> {
        let Some(fields) = self.get::<HashMap<String, Box<RawValue>>>(object)? else {
            return Ok(None);
        };
        let Some(text) = fields
            .get(name)
            .map(|raw| raw.get())
            .filter(|text| *text != "null")
        else {
            return Ok(None);
        };
        serde_json::from_str(text).map(Some).map_err(|_| {
            let (kind, wanted) = expected::<T>();
            let message = format!("Input should be a valid {wanted}");
            ApiError::schema(kind, &format!("body.{object}.{name}"), &message, text)
        })
    }
}

/// Pydantic's word for a type.
fn expected<T>() -> (&'static str, &'static str) {
    match std::any::type_name::<T>() {
        "bool" => ("bool_type", "boolean"),
        "alloc::string::String" => ("string_type", "string"),
        "f64" => ("float_type", "number"),
        name if name.starts_with('u') || name.starts_with('i') => ("int_type", "integer"),
        name if name.contains("Vec<") => ("list_type", "list"),
        _ => ("dict_type", "dictionary"),
    }
}

/// Which API is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Completions,
    Chat,
    Messages,
    Responses,
    Generate,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    api: Api,
    max_tokens: Option<i64>,
    ignore_eos: bool,
    /// Model name to show.
    pub(crate) model: String,
    /// Adapter.
    pub(crate) adapter: Option<Adapter>,
    /// Answers per prompt.
    pub(crate) n: u32,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    /// The client's seed, or 0.
    pub(crate) seed: u64,
    pub(crate) salt: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) return_token_ids: bool,
    pub(crate) report_reused: bool,
    /// Rank asked for.
    pub(crate) rank: Option<u32>,
    /// Sampling temperature asked for.
    pub(crate) temperature: Option<f64>,
    /// The prompt comes as text: vLLM stops counting one token past its limit.
    prompt_is_text: bool,
}

impl Params {
    pub(crate) fn read(
        api: Api,
        fields: &Fields<'_>,
        headers: &HeaderMap,
        settings: &Settings,
    ) -> Result<Self, ApiError> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (model, adapter) = settings.model(fields.get::<String>("model")?.as_deref())?;
        let sampling = |name: &str| match api {
            Api::Generate => fields.inner::<i64>("sampling_params", name),
            _ => fields.get::<i64>(name),
        };
        let max_tokens = match api {
            Api::Chat => fields.get("max_completion_tokens")?.or(fields.get("max_tokens")?),
            Api::Responses => fields.get("max_output_tokens")?,
            Api::Completions | Api::Messages | Api::Generate => sampling("max_tokens")?,
        };
        let temperature: Option<f64> = match api {
            Api::Generate => fields.inner("sampling_params", "temperature")?,
            _ => fields.get("temperature")?,
        };
        let stream = fields.flag("stream")?;
        if !stream && fields.raw("stream_options").is_some() {
            return Err(ApiError::parameter(
                "Stream options can only be defined when `stream=True`.",
                "stream_options",
                None,
            ));
        }
        if let Some(temperature) = temperature.filter(|temperature| *temperature < 0.0) {
            return Err(ApiError::parameter(
                format_args!("temperature must be non-negative, got {temperature:?}."),
                "temperature",
                Some(format!("{temperature:?}")),
            ));
        }
        let n = sampling("n")?.unwrap_or(1);
        let n = u32::try_from(n)
            .ok()
            .filter(|n| (1..=CHOICES).contains(n))
            .ok_or_else(|| {
                ApiError::parameter(format_args!("n must be 1 to {CHOICES}, got {n}."), "n", None)
            })?;
        if n > 1 && temperature == Some(0.0) {
            return Err(ApiError::bad(
                format!("n must be 1 when using greedy sampling, got {n}."),
                None,
            ));
        }
        let salt: Option<String> = fields.get("cache_salt")?;
        if salt.as_ref().is_some_and(String::is_empty) {
            return Err(ApiError::parameter(
                "Parameter 'cache_salt' must be a non-empty string if provided.",
                "cache_salt",
                None,
            ));
        }
        let seed = sampling("seed")?;
        let report: Option<String> = fields.inner("vllm_xargs", "kv_cache_report_mode")?;
        Ok(Self {
            api,
            max_tokens,
            ignore_eos: match api {
                Api::Generate => fields.inner("sampling_params", "ignore_eos")?.unwrap_or(false),
                _ => fields.flag("ignore_eos")?,
            },
            model,
            adapter,
            n,
            stream,
            include_usage: fields.inner("stream_options", "include_usage")?.unwrap_or(false),
            continuous_usage: fields
                .inner("stream_options", "continuous_usage_stats")?
                .unwrap_or(false),
            seed: seed.map_or(0, |seed| xxh3_64(&seed.to_le_bytes())),
            salt,
            session: fields
                .get::<String>("session_id")?
                .or(header("x-session-id").map(str::to_owned)),
            return_token_ids: fields.flag("return_token_ids")?,
            report_reused: report.as_deref() == Some("full"),
            // vLLM ignores a rank that is no number
            rank: header("x-data-parallel-rank").and_then(|rank| rank.parse().ok()),
            temperature,
            prompt_is_text: match api {
                Api::Generate => false,
                Api::Completions => fields
                    .raw("prompt")
                    .is_some_and(|prompt| prompt.trim_start_matches(['[', ' ']).starts_with('"')),
                Api::Chat | Api::Messages | Api::Responses => true,
            },
        })
    }

    /// Refuses more sequences than one request may become.
    pub(crate) fn check_sequences(&self, prompts: usize) -> Result<(), ApiError> {
        let sequences = prompts * self.n as usize;
        if sequences <= SEQUENCES {
            return Ok(());
        }
        Err(ApiError::parameter(
            format_args!(
                "{prompts} prompts times n={} are {sequences} sequences and a request may become {SEQUENCES}; send fewer prompts or lower n.",
                self.n
            ),
            "n",
            Some(self.n.to_string()),
        ))
    }

    /// Tokens that may be generated after a prompt of so many.
    pub(crate) fn limit(&self, max_model_len: u32, prompt: usize) -> Result<u32, ApiError> {
        let room = i64::from(max_model_len) - prompt as i64;
        if room < 0 {
            let counted = if self.prompt_is_text {
                max_model_len as usize + 1
            } else {
                prompt
            };
            return Err(ApiError::too_long(max_model_len, counted, self.prompt_is_text));
        }
        let asked = match (self.max_tokens, self.api) {
            (Some(asked), _) => asked,
            (None, Api::Completions) => 16,
            (None, _) => room,
        };
        if asked > i64::from(max_model_len) {
            return Err(ApiError::parameter(
                format_args!(
                    "max_tokens={asked} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens."
                ),
                "max_tokens",
                Some(asked.to_string()),
            ));
        }
        let limit = asked.min(room);
        if limit < 1 {
            return Err(ApiError::parameter(
                format_args!("max_tokens must be at least 1, got {limit}."),
                "max_tokens",
                Some(limit.to_string()),
            ));
        }
        Ok(limit as u32)
    }

    /// Where the request would end by itself: only if it sets no limit of its own. Exponentially distributed.
    pub(crate) fn natural_length(&self, seed: u64, mean: u32) -> Option<u32> {
        if self.max_tokens.is_some() || self.ignore_eos || self.api == Api::Completions {
            return None;
        }
        let uniform = (xxh3_64(&seed.to_le_bytes()) >> 11) as f64 / (1_u64 << 53) as f64;
        Some(1 + (-(1.0 - uniform).ln() * f64::from(mean - 1)) as u32)
    }
}
