//! What tokenizing answers.

/// Token ids of one prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokenized {
    /// The ids, as the engine will see them up to [`Self::matchable`].
    pub ids: Vec<u32>,
    /// Images, videos and sounds, in prompt order.
    pub media: Vec<Media>,
    /// Leading ids that may be compared with cached blocks: all of them, or those before the first
    /// placeholder whose length or identity is not known here.
    pub matchable: usize,
}

/// One placeholder in the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// Index of its first id. With `length` 0 it is where the engine will expand it, or the best guess.
    pub offset: usize,
    /// Ids it takes in [`Tokenized::ids`]; 0 when only the engine knows (the in-process tokenizer).
    pub length: usize,
    /// The engine's identifier of the content, when `render` told it.
    pub hash: Option<String>,
}

impl Tokenized {
    /// Ids without media.
    pub fn plain(ids: Vec<u32>) -> Self {
        let matchable = ids.len();
        Self {
            ids,
            media: Vec::new(),
            matchable,
        }
    }

    /// Length of the prompt in tokens, with `media_tokens` for each placeholder that is not expanded.
    pub fn prompt_tokens(&self, media_tokens: usize) -> usize {
        self.ids.len() + media_tokens * self.media.iter().filter(|media| media.length == 0).count()
    }
}
