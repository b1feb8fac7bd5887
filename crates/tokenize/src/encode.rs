//! Text to ids behind a small trait, so that the pre-release tokenizer stays in one file.

use serde_json::Value;
use tokenizers::normalizers::metaspace::PrependBehavior;
use tokenizers::pipeline::{
    EncodeOptions, Override, PipelineNormalizer, PipelineToken, PipelineTokenizer, Segment,
    SpecialSegmentIterator,
};

/// A stretch of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'text> {
    /// Text between added tokens.
    Text(&'text str),
    /// An added token found in the text.
    Added(u32),
}

/// The tokenizer failed on a text, or cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// An older file cannot be brought to the current format.
    #[error("tokenizer file is not understood: {0}")]
    Convert(#[from] tokenizers::ConvertError),
    /// The tokenizer's own report.
    #[error("tokenizer: {0}")]
    Pipeline(tokenizers::Error),
}

impl From<tokenizers::Error> for TokenizerError {
    fn from(error: tokenizers::Error) -> Self {
        Self::Pipeline(error)
    }
}

/// Text to ids. Implementations are shared between threads and must give the same ids for the same
/// text whatever they encoded before.
pub trait Encode: Send + Sync {
    /// Appends the ids of `text` to `ids`: added tokens are matched, nothing is put around the text.
    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError>;

    /// Whether [`Self::encode`] of a text is the concatenation of its [`Self::pieces`], each encoded
    /// alone. Only then may pieces be cached.
    fn pieces_are_independent(&self) -> bool;

    /// Cuts `text` at added tokens; the pieces cover it in order.
    fn pieces<'text>(&self, text: &'text str, each: &mut dyn FnMut(Piece<'text>));

    /// Ids that "special tokens on" puts before and after one text.
    fn affixes(&self) -> (&[u32], &[u32]);

    /// Ids in use: the model's vocabulary and the added tokens, largest id + 1.
    fn vocabulary(&self) -> u32;

    /// Text of `ids`, special tokens included.
    fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError>;
}

/// `tokenizers` 1.0's read-only pipeline.
pub struct Pipeline {
    inner: PipelineTokenizer,
    options: EncodeOptions,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    vocabulary: u32,
    independent: bool,
}

impl Pipeline {
    /// Reads a parsed `tokenizer.json`, of the old format or the new.
    ///
    /// Truncation and padding that the file asks for are off, as in vLLM.
    pub fn from_json(mut json: Value) -> Result<Self, TokenizerError> {
        let vocabulary = vocabulary(&json);
        tokenizers::canonicalize_value(&mut json)?;
        let text = json.to_string();
        drop(json);
        let inner = tokenizers::from_json(&text)?;
        let template = &inner.get_post_processor().single;
        let ids = |run: &[(PipelineToken, u8)]| run.iter().map(|(token, _)| token.id()).collect();
        let (prefix, suffix) = (ids(&template.prefix), ids(&template.suffix));
        let independent = pieces_are_independent(&inner);
        let options = EncodeOptions {
            add_special_tokens: false,
            encode_special_tokens: false,
            padding: Override::Off,
            truncation: Override::Off,
        };
        Ok(Self {
            inner,
            options,
            prefix,
            suffix,
            vocabulary,
            independent,
        })
    }
}

impl Encode for Pipeline {
    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        self.inner.encode_into(text, &self.options, &mut tokens)?;
        ids.extend_from_slice(PipelineToken::cast_slice(&tokens));
        Ok(())
    }

    fn pieces_are_independent(&self) -> bool {
        self.independent
    }

    fn pieces<'text>(&self, text: &'text str, each: &mut dyn FnMut(Piece<'text>)) {
        for segment in SpecialSegmentIterator::new(text, self.inner.get_added_vocabulary(), false, false) {
            each(match segment {
                Segment::Text {
                    text,
                    input_offset: _,
                } => Piece::Text(text),
                Segment::SpecialToken(id) => Piece::Added(id),
            });
        }
    }

    fn affixes(&self) -> (&[u32], &[u32]) {
        (&self.prefix, &self.suffix)
    }

    fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        Ok(self.inner.decode(ids, false)?)
    }
}

/// The pipeline cuts the raw text at the added tokens that are matched on raw text, leftmost first,
/// and normalizes, cuts and tokenizes what lies between alone. So a piece means the same by itself
/// unless a raw token's match depends on its neighbours (`single_word`), or a normalizer treats the
/// start of the text differently. Tokens that strip spaces or are matched on normalized text change
/// where cuts are, but not what a piece between two cuts is.
fn pieces_are_independent(inner: &PipelineTokenizer) -> bool {
    let added = inner.get_added_vocabulary().get_added_tokens_decoder();
    let looks_around = added.values().any(|token| token.single_word && !token.normalized);
    let knows_the_start = |normalizer: &PipelineNormalizer| match normalizer {
        PipelineNormalizer::Metaspace(metaspace) => metaspace.prepend() == PrependBehavior::First,
        _ => false,
    };
    !looks_around && !inner.get_normalizers().iter().any(knows_the_start)
}

/// Largest id of the model's vocabulary and the added tokens, + 1.
fn vocabulary(json: &Value) -> u32 {
    let model = json.pointer("/model/vocab");
    let words = model
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|vocab| vocab.values());
    let pieces = model
        .and_then(Value::as_array)
        .map_or(0, |pieces| pieces.len() as u64);
    let added = json
        .get("added_tokens")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let ids = words
        .filter_map(Value::as_u64)
        .chain(added.filter_map(|token| token.get("id")?.as_u64()));
    ids.map(|id| id + 1)
        .max()
        .unwrap_or(0)
        .max(pieces)
        .min(u64::from(u32::MAX)) as u32
}
