//! vLLM's `/inference/v1/generate`: token ids, with placeholders where images were.

use std::{borrow::Cow, collections::BTreeMap};

use lmetric_tokenize::{Media, Tokenized};
use serde::Deserialize;

use super::{
    PromptInput,
    fields::{Fields, as_type},
};

/// What the engine's renderer found besides text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Features<'a> {
    #[serde(borrow)]
    mm_hashes: BTreeMap<Cow<'a, str>, Vec<Option<String>>>,
    #[serde(borrow)]
    mm_placeholders: BTreeMap<Cow<'a, str>, Vec<Placeholder>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Placeholder {
    offset: usize,
    length: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SamplingParams<'a> {
    pub(super) n: Option<f64>,
    #[serde(borrow)]
    pub(super) extra_args: Option<ExtraArgs<'a>>,
}

/// `vllm_xargs` and `sampling_params.extra_args`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExtraArgs<'a> {
    #[serde(borrow)]
    kv_cache_report_mode: Option<Cow<'a, str>>,
}

impl ExtraArgs<'_> {
    /// The engine will announce reused blocks again.
    pub(super) fn asks_for_report(&self) -> bool {
        self.kv_cache_report_mode.as_deref() == Some("full")
    }
}

/// The prompt and the number of media in it.
pub(super) fn prompt(fields: &Fields<'_>) -> Option<(PromptInput, u32)> {
    let ids: Vec<u32> = as_type(fields.token_ids)?;
    if ids.is_empty() {
        return None;
    }
    let mut prompt = Tokenized::plain(ids);
    if let Some(raw) = fields.features {
        match serde_json::from_str::<Option<Features<'_>>>(raw.get()) {
            Ok(None) => {}
            Ok(Some(features)) => add_media(&mut prompt, &features),
            // placeholders at unknown places: nothing can be compared
            Err(_) => prompt.matchable = 0,
        }
    }
    let images = prompt.media.len() as u32;
    Some((PromptInput::Tokens(prompt), images))
}

fn add_media(prompt: &mut Tokenized, features: &Features<'_>) {
    for (modality, placeholders) in &features.mm_placeholders {
        let hashes = features.mm_hashes.get(modality);
        for (at, placeholder) in placeholders.iter().enumerate() {
            let hash = hashes.and_then(|hashes| hashes.get(at)).cloned().flatten();
            if hash.is_none() {
                prompt.matchable = prompt.matchable.min(placeholder.offset);
            }
            prompt.media.push(Media {
                offset: placeholder.offset,
                length: placeholder.length,
                hash,
            });
        }
    }
    prompt.media.sort_by_key(|media| media.offset);
}
