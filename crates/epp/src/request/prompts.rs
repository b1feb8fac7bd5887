//! `prompt` and `input`: a text, token ids, or a list of either.

use hashbrown::HashSet;
use lmetric_tokenize::Tokenized;
use serde_json::value::RawValue;

use super::PromptInput;

/// The distinct prompts in order, and how many there are in all. Empty when the value is of no known form.
pub(super) fn read(value: &RawValue, add_special_tokens: bool) -> (Vec<PromptInput>, u32) {
    let text = value.get();
    let is_list_of_prompts = text
        .strip_prefix('[')
        .is_some_and(|rest| rest.trim_start().starts_with(['"', '[']));
    if !is_list_of_prompts {
        let prompt = one(value, add_special_tokens);
        return (Vec::from_iter(prompt), 1);
    }
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) else {
        return (Vec::new(), 1);
    };
    let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    let mut seen = HashSet::with_capacity(items.len());
    let prompts = items
        .into_iter()
        .filter(|item| seen.insert(item.get()))
        .filter_map(|item| one(item, add_special_tokens))
        .collect();
    (prompts, count)
}

fn one(value: &RawValue, add_special_tokens: bool) -> Option<PromptInput> {
    let text = value.get();
    if text.starts_with('"') {
        let text = serde_json::from_str(text).ok()?;
        return Some(PromptInput::Text {
            text,
            add_special_tokens,
        });
    }
    let ids: Vec<u32> = serde_json::from_str(text).ok()?;
    (!ids.is_empty()).then(|| PromptInput::Tokens(Tokenized::plain(ids)))
}
