//! What an engine announces, as it stands in the message.

use std::borrow::Cow;

use super::cursor::Cursor;

/// One message: what one scheduler step did.
#[derive(Clone, Debug)]
pub struct Batch<'p> {
    /// Seconds since 1970, by the engine's clock.
    pub timestamp: f64,
    /// Its events, in order.
    pub events: Vec<Event<'p, 'static>>,
    /// Data-parallel rank, when it says so.
    pub rank: Option<i64>,
    /// Events left out: unknown tag or wrong shape.
    pub skipped: u32,
    /// Keys of maps, and elements past the known ones, that mean nothing to us.
    pub unknown_fields: u32,
}

/// A change of the engine's cache. Text and hashes are borrowed from the message (`'p`), token ids from the
/// decoder (`'t`).
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'p, 't> {
    /// A run of consecutive full blocks of one request was stored.
    Stored(Stored<'p, 't>),
    /// Copies of blocks are gone.
    Removed(Removed<'p>),
    /// Everything is gone.
    Cleared,
}

/// `BlockStored`. A field that is absent and one that is nil are the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<'p, 't> {
    /// The engine's hash of each block.
    pub hashes: Hashes<'p>,
    /// Hash of the block before the first one; none for the start of a prompt.
    pub parent: Option<Hash<'p>>,
    /// Ids of all tokens in the run.
    pub tokens: Cow<'t, [u32]>,
    /// Tokens per block.
    pub block_size: i64,
    /// LoRA adapter by number (0.16 and older have nothing else).
    pub lora_id: Option<i64>,
    /// Where it is stored; none means GPU.
    pub medium: Option<&'p str>,
    /// LoRA adapter by name.
    pub lora_name: Option<&'p str>,
    /// What else the engine hashes into each block; one entry a block.
    pub extra_keys: Option<ExtraKeys<'p>>,
    /// KV cache group.
    pub group: Option<i64>,
    /// What kind of attention the group serves.
    pub spec_kind: Option<&'p str>,
    /// Its window, when it slides.
    pub sliding_window: Option<i64>,
    /// `LOCAL` or `REMOTE`; none means local.
    pub locality: Option<&'p str>,
    /// Who owns a shared block.
    pub ownership: Option<&'p str>,
    /// Session that the request named.
    pub session_id: Option<&'p str>,
}

/// `BlockRemoved`.
#[derive(Clone, Debug, PartialEq)]
pub struct Removed<'p> {
    /// The engine's hash of each block.
    pub hashes: Hashes<'p>,
    /// Where it was stored; none means GPU.
    pub medium: Option<&'p str>,
    /// KV cache group.
    pub group: Option<i64>,
    /// `LOCAL` or `REMOTE`; none means local.
    pub locality: Option<&'p str>,
    /// Who owns a shared block.
    pub ownership: Option<&'p str>,
}

impl<'p> Event<'p, '_> {
    /// The same with token ids of its own.
    pub fn into_owned_tokens(self) -> Event<'p, 'static> {
        match self {
            Event::Stored(stored) => {
                let tokens = Cow::Owned(stored.tokens.into_owned());
                Event::Stored(Stored { tokens, ..stored })
            }
            Event::Removed(removed) => Event::Removed(removed),
            Event::Cleared => Event::Cleared,
        }
    }
}

/// A block hash as sent: a number (the last eight bytes of the digest) or the whole digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash<'p> {
    /// A number from 0 up.
    Int(u64),
    /// A negative number (SGLang, and vLLM's old `builtin` hash).
    Negative(i64),
    /// Digest bytes, at least eight.
    Bytes(&'p [u8]),
}

impl Hash<'_> {
    /// The number by which we know the block: of bytes the last eight, big-endian; of a negative number its
    /// 64 bits. All three forms of one digest give the same number.
    pub fn get(self) -> u64 {
        match self {
            Hash::Int(number) => number,
            Hash::Negative(number) => number as u64,
            Hash::Bytes(digest) => digest.last_chunk().copied().map_or(0, u64::from_be_bytes),
        }
    }
}

/// A list of hashes that was checked and is decoded when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes<'p> {
    pub(super) count: usize,
    /// The elements, one after the other.
    pub(super) raw: &'p [u8],
}

impl<'p> Hashes<'p> {
    /// How many.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Hash<'p>> + use<'p> {
        let mut cursor = Cursor::new(self.raw);
        (0..self.count).map_while(move |_| super::values::hash(&mut cursor).ok())
    }
}

/// For each block the extra keys that its hash covers; checked, and decoded when read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraKeys<'p> {
    pub(super) count: usize,
    pub(super) raw: &'p [u8],
}

/// One extra key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExtraKey<'p> {
    /// Bare text: LoRA name, salt, or (0.18 and older) the identifier of a multimodal item.
    Text(&'p str),
    /// Identifier and offset of a multimodal item.
    Item(&'p str, i64),
    /// `("lora", name, path)`.
    Lora(&'p str),
    /// `("cache_salt", salt)`.
    Salt(&'p str),
    /// Anything else (digest of prompt embeddings, look-ahead tokens, what comes one day): its bytes.
    Other(&'p [u8]),
}

impl<'p> ExtraKeys<'p> {
    /// Number of entries, one a block.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The keys of each block; empty where it has none.
    pub fn iter(&self) -> impl Iterator<Item = BlockExtras<'p>> + use<'p> {
        let mut cursor = Cursor::new(self.raw);
        (0..self.count).map_while(move |_| super::values::block_extras(&mut cursor).ok())
    }
}

/// The extra keys of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockExtras<'p> {
    pub(super) count: usize,
    pub(super) raw: &'p [u8],
}

impl<'p> BlockExtras<'p> {
    /// Whether the block has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = ExtraKey<'p>> + use<'p> {
        let mut cursor = Cursor::new(self.raw);
        (0..self.count).map_while(move |_| super::values::extra_key(&mut cursor).ok())
    }
}
