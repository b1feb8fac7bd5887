//! Text to token ids and back, as far as a simulator needs it.
//!
//! With a tokenizer, prompts get the ids that vLLM would see, and output is drawn from tokens that are whole
//! lower-case words after a space: their texts join without surprises, and encoding them again gives the same
//! ids, so that a conversation's next turn hits the blocks of the answer before. Without one, a text becomes
//! one made-up id per few characters and output reads ` w1234`; such a word turns back into its id.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use lmetric_tokenize::{ChatRequest, EncodeError, ModelTokenizer};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

/// Most words that output is drawn from.
const WORDS: usize = 4096;
/// Made-up ids: below it for text, from it on for output words.
const MADE_UP: u32 = 1000;

/// A tokenizer folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The tokenizer does not load.
    #[error("--tokenizer: {0}")]
    Load(#[from] lmetric_tokenize::LoadError),
    /// Its vocabulary cannot be read.
    #[error("--tokenizer: {file}: {problem}; point it at a folder with a Hugging Face tokenizer.json")]
    Vocabulary {
        /// Path of the file.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

/// Encodes prompts and words output.
pub(crate) struct Codec {
    tokenizer: Option<ModelTokenizer>,
    vocabulary: Arc<[u32]>,
    words: HashMap<u32, Box<str>>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec")
            .field("words", &self.words.len())
            .finish_non_exhaustive()
    }
}

impl Codec {
    /// No tokenizer.
    pub(crate) fn made_up() -> Self {
        let ids = MADE_UP..MADE_UP + WORDS as u32;
        Self {
            tokenizer: None,
            vocabulary: ids.clone().collect(),
            words: ids.map(|id| (id, format!(" w{id}").into_boxed_str())).collect(),
        }
    }

    /// The tokenizer in `folder`.
    pub(crate) fn load(folder: &Path) -> Result<Self, TextError> {
        let tokenizer = ModelTokenizer::load(folder)?;
        let file = folder.join("tokenizer.json");
        let refuse = |problem: String| TextError::Vocabulary {
            file: file.display().to_string(),
            problem,
        };
        let text = std::fs::read(&file).map_err(|error| refuse(error.to_string()))?;
        let json: Value = serde_json::from_slice(&text).map_err(|error| refuse(error.to_string()))?;
        let mut words = whole_words(&json);
        words.retain(|(word, id)| {
            tokenizer
                .encode_text(word, false)
                .is_ok_and(|got| got.ids == [*id])
        });
        words.truncate(WORDS);
        if words.is_empty() {
            return Err(refuse("no token is a whole word after a space".to_owned()));
        }
        Ok(Self {
            tokenizer: Some(tokenizer),
            vocabulary: words.iter().map(|(_, id)| *id).collect(),
            words: words
                .into_iter()
                .map(|(word, id)| (id, word.into_boxed_str()))
                .collect(),
        })
    }

    /// Ids that output is drawn from.
    pub(crate) fn vocabulary(&self) -> &Arc<[u32]> {
        &self.vocabulary
    }

    /// The text of a generated token: ASCII letters and digits after a space, so it needs no escaping in JSON.
    pub(crate) fn word(&self, id: u32) -> &str {
        self.words.get(&id).map_or("", |word| word)
    }

    /// Ids of a plain prompt.
    pub(crate) fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, EncodeError> {
        match &self.tokenizer {
            Some(tokenizer) => Ok(tokenizer.encode_text(text, add_special_tokens)?.ids),
            None => Ok(made_up_ids(text)),
        }
    }

    /// Ids of a conversation.
    pub(crate) fn encode_chat(&self, chat: &ChatRequest) -> Result<Vec<u32>, EncodeError> {
        if let Some(tokenizer) = &self.tokenizer {
            return Ok(tokenizer.encode_chat(chat)?.ids);
        }
        let mut text = String::new();
        for tool in chat.tools.iter().flatten() {
            let _ = writeln!(text, "<|im_start|>tool\n{tool}<|im_end|>");
        }
        for message in &chat.messages {
            let role = message.role().unwrap_or("user");
            let content = match message.text() {
                Some(text) => text.to_string(),
                None => message.get("content").unwrap_or(&Value::Null).to_string(),
            };
            let _ = writeln!(text, "<|im_start|>{role}\n{content}<|im_end|>");
        }
        text += "<|im_start|>assistant\n";
        Ok(made_up_ids(&text))
    }
}

/// Vocabulary entries ` word`, in the two spellings of a leading space, by id.
fn whole_words(tokenizer: &Value) -> Vec<(String, u32)> {
    let mut words: Vec<(String, u32)> = tokenizer["model"]["vocab"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(piece, id)| {
            let word = piece.strip_prefix('Ġ').or_else(|| piece.strip_prefix('▁'))?;
            let plain = word.len() >= 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
            Some((format!(" {word}"), u32::try_from(id.as_u64()?).ok()?)).filter(|_| plain)
        })
        .collect();
    words.sort_unstable_by_key(|(_, id)| *id);
    words
}

fn made_up_ids(text: &str) -> Vec<u32> {
    let mut ids = Vec::with_capacity(text.len() / 4 + 1);
    for piece in text.split_inclusive(' ') {
        let word = piece.trim_end_matches(' ');
        match word
            .strip_prefix('w')
            .and_then(|digits| digits.parse::<u32>().ok())
        {
            Some(id) if (MADE_UP..MADE_UP + WORDS as u32).contains(&id) => ids.push(id),
            _ => ids.extend(
                piece
                    .as_bytes()
                    .chunks(4)
                    .map(|chunk| (xxh3_64(chunk) % u64::from(MADE_UP)) as u32),
            ),
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_output_encodes_to_the_ids_it_came_from() {
        let codec = Codec::made_up();
        let ids: Vec<u32> = codec.vocabulary()[..50].to_vec();
        let text: String = ids.iter().map(|id| codec.word(*id)).collect();
        let encoded = codec.encode(&text, true).unwrap();
        assert_eq!(encoded[1..], ids[..], "all but the leading space");
    }

    #[test]
    fn a_longer_text_keeps_the_ids_of_its_beginning() {
        let codec = Codec::made_up();
        let short = codec.encode("the quick brown fox ", true).unwrap();
        let long = codec.encode("the quick brown fox jumps", true).unwrap();
        assert!(long.starts_with(&short));
    }

    #[test]
    fn only_whole_lower_case_words_after_a_space_are_drawn() {
        let json = serde_json::json!({"model": {"vocab": {"Ġthe": 5, "the": 6, "ĠThe": 7, "Ġa": 8, "Ġon": 3, "▁of": 9}}});
        let words = whole_words(&json);
        assert_eq!(
            words,
            [
                (" on".to_owned(), 3),
                (" the".to_owned(), 5),
                (" of".to_owned(), 9)
            ]
        );
    }
}
