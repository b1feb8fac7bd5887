//! From bytes to events. Both encodings: positional arrays (vLLM ≤ 0.23) and maps (≥ 0.24).

use std::borrow::Cow;

use rmp::Marker;

use super::{
    Batch, BlockExtras, Event, ExtraKey, ExtraKeys, Hash, Hashes, MAX_BATCH_BYTES, MAX_HASHES, Removed,
    Stored, WireError,
    cursor::{Cursor, Fault},
};

/// What a batch says about itself once all its events were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Seconds since 1970, by the engine's clock.
    pub timestamp: f64,
    /// Data-parallel rank, when it says so.
    pub rank: Option<i64>,
    /// Events that were handed out.
    pub events: u32,
    /// Events left out: unknown tag or wrong shape.
    pub skipped: u32,
    /// Keys of maps, and elements past the known ones, that mean nothing to us.
    pub unknown_fields: u32,
}

/// Decodes batches; keeps the buffer for token ids from one to the next.
#[derive(Debug, Default)]
pub struct Decoder {
    tokens: Vec<u32>,
}

/// Token ids that the buffer keeps room for between batches.
const KEPT_TOKENS: usize = 64 * 1024;

/// Decodes a whole batch. For tools and tests; [`Decoder::decode`] allocates nothing.
pub fn decode_batch(payload: &[u8]) -> Result<Batch<'_>, WireError> {
    let mut events = Vec::new();
    let summary = Decoder::default().decode(payload, |event| events.push(event.into_owned_tokens()))?;
    let Summary {
        timestamp,
        rank,
        events: _,
        skipped,
        unknown_fields,
    } = summary;
    Ok(Batch {
        timestamp,
        events,
        rank,
        skipped,
        unknown_fields,
    })
}

impl Decoder {
    /// The data-parallel rank of a batch, without handing out its events. O(bytes).
    pub fn rank(payload: &[u8]) -> Result<Option<i64>, WireError> {
        let (_, mut cursor, elements) = open(payload)?;
        cursor.skip().map_err(|_| WireError::Truncated)?;
        read_rank(&mut cursor, elements)
    }

    /// Hands every event of a batch to `each`, in order. An event of an unknown kind or of the wrong shape
    /// is counted and left out. After an error the events before it have been handed out. O(bytes).
    pub fn decode<'p>(
        &mut self,
        payload: &'p [u8],
        mut each: impl FnMut(Event<'p, '_>),
    ) -> Result<Summary, WireError> {
        let (timestamp, mut cursor, elements) = open(payload)?;
        let mut summary = Summary {
            timestamp,
            ..Summary::default()
        };
        let count = cursor.array().map_err(|fault| match fault {
            Fault::Truncated => WireError::Truncated,
            Fault::Type => WireError::NotABatch,
        })?;
        for _ in 0..count {
            self.tokens.clear();
            let start = cursor;
            match event(&mut cursor, &mut self.tokens, &mut summary.unknown_fields) {
                Ok(Some(event)) => {
                    summary.events += 1;
                    each(event.lend(&self.tokens));
                }
                Ok(None) => summary.skipped += 1,
                Err(fault) => {
                    if fault == Fault::Truncated {
                        return Err(WireError::Truncated);
                    }
                    summary.skipped += 1;
                    cursor = start;
                    cursor.skip().map_err(|_| WireError::Truncated)?;
                }
            }
        }
        self.tokens.clear();
        self.tokens.shrink_to(KEPT_TOKENS);
        summary.rank = read_rank(&mut cursor, elements)?;
        Ok(summary)
    }
}

/// Timestamp, the cursor at the list of events, and how many elements the batch has.
fn open(payload: &[u8]) -> Result<(f64, Cursor<'_>, usize), WireError> {
    if payload.len() > MAX_BATCH_BYTES {
        return Err(WireError::TooLong { bytes: payload.len() });
    }
    let mut cursor = Cursor::new(payload);
    let broken = |fault| match fault {
        Fault::Truncated => WireError::Truncated,
        Fault::Type => WireError::NotABatch,
    };
    let elements = cursor.array().map_err(broken)?;
    if elements < 2 {
        return Err(WireError::NotABatch);
    }
    let timestamp = cursor.float().map_err(broken)?;
    Ok((timestamp, cursor, elements))
}

fn read_rank(cursor: &mut Cursor<'_>, elements: usize) -> Result<Option<i64>, WireError> {
    if elements < 3 || cursor.nil() {
        return Ok(None);
    }
    match cursor.int() {
        Ok(rank) => Ok(Some(rank)),
        Err(Fault::Truncated) => Err(WireError::Truncated),
        Err(Fault::Type) => Ok(None),
    }
}

/// A stored run without its tokens, which are in the decoder's buffer.
enum Raw<'p> {
    Stored(Stored<'p, 'static>),
    Removed(Removed<'p>),
    Cleared,
}

impl<'p> Raw<'p> {
    fn lend<'t>(self, tokens: &'t [u32]) -> Event<'p, 't> {
        match self {
            Self::Stored(stored) => Event::Stored(Stored {
                tokens: Cow::Borrowed(tokens),
                ..stored
            }),
            Self::Removed(removed) => Event::Removed(removed),
            Self::Cleared => Event::Cleared,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stored,
    Removed,
    Cleared,
}

impl Kind {
    fn of(tag: &[u8]) -> Option<Self> {
        match tag {
            b"BlockStored" => Some(Self::Stored),
            b"BlockRemoved" => Some(Self::Removed),
            b"AllBlocksCleared" => Some(Self::Cleared),
            _ => None,
        }
    }
}

/// Fields of any event, until it is known which it is.
#[derive(Default)]
struct Fields<'p> {
    hashes: Option<Hashes<'p>>,
    parent: Option<Hash<'p>>,
    has_tokens: bool,
    block_size: Option<i64>,
    lora_id: Option<i64>,
    medium: Option<&'p str>,
    lora_name: Option<&'p str>,
    extra_keys: Option<ExtraKeys<'p>>,
    group: Option<i64>,
    spec_kind: Option<&'p str>,
    sliding_window: Option<i64>,
    locality: Option<&'p str>,
    ownership: Option<&'p str>,
    session_id: Option<&'p str>,
}

/// Positional order of the array encoding.
const STORED: [&[u8]; 11] = [
    b"block_hashes",
    b"parent_block_hash",
    b"token_ids",
    b"block_size",
    b"lora_id",
    b"medium",
    b"lora_name",
    b"extra_keys",
    b"group_idx",
    b"kv_cache_spec_kind",
    b"kv_cache_spec_sliding_window",
];
const REMOVED: [&[u8]; 3] = [b"block_hashes", b"medium", b"group_idx"];

/// `None`: stepped over, because nobody knows its tag.
fn event<'p>(
    cursor: &mut Cursor<'p>,
    tokens: &mut Vec<u32>,
    unknown: &mut u32,
) -> Result<Option<Raw<'p>>, Fault> {
    let mut fields = Fields::default();
    let kind = if cursor.at_map() {
        let entries = cursor.map()?;
        let mut kind = None;
        for _ in 0..entries {
            let name = cursor.text()?;
            if name == b"type" {
                kind = Some(Kind::of(cursor.text()?));
            } else if !fields.read(name, cursor, tokens)? {
                *unknown = unknown.saturating_add(1);
                cursor.skip()?;
            }
        }
        match kind {
            Some(Some(kind)) => kind,
            Some(None) => return Ok(None),
            None => return Err(Fault::Type),
        }
    } else {
        let elements = cursor.array()?;
        if elements == 0 {
            return Err(Fault::Type);
        }
        let kind = Kind::of(cursor.text()?);
        let names: &[&[u8]] = match kind {
            Some(Kind::Stored) => &STORED,
            Some(Kind::Removed) => &REMOVED,
            Some(Kind::Cleared) | None => &[],
        };
        for at in 0..elements - 1 {
            if let Some(name) = names.get(at) {
                fields.read(name, cursor, tokens)?;
                continue;
            }
            if kind.is_some() {
                *unknown = unknown.saturating_add(1);
            }
            cursor.skip()?;
        }
        match kind {
            Some(kind) => kind,
            None => return Ok(None),
        }
    };
    fields.into_event(kind).map(Some)
}

impl<'p> Fields<'p> {
    /// Reads the value of `name`; false, with nothing read, when the name is unknown.
    fn read(&mut self, name: &[u8], cursor: &mut Cursor<'p>, tokens: &mut Vec<u32>) -> Result<bool, Fault> {
        match name {
            b"block_hashes" => self.hashes = Some(hashes(cursor)?),
            b"parent_block_hash" => self.parent = optional(cursor, hash)?,
            b"token_ids" => {
                tokens.clear();
                let count = cursor.array()?;
                cursor.tokens(count, tokens)?;
                self.has_tokens = true;
            }
            b"block_size" => self.block_size = Some(cursor.int()?),
            b"lora_id" => self.lora_id = optional(cursor, Cursor::int)?,
            b"medium" => self.medium = optional(cursor, Cursor::str)?,
            b"lora_name" => self.lora_name = optional(cursor, Cursor::str)?,
            b"extra_keys" => self.extra_keys = optional(cursor, extra_keys)?,
            b"group_idx" => self.group = optional(cursor, Cursor::int)?,
            b"kv_cache_spec_kind" => self.spec_kind = optional(cursor, Cursor::str)?,
            b"kv_cache_spec_sliding_window" => self.sliding_window = optional(cursor, Cursor::int)?,
            b"locality" => self.locality = optional(cursor, Cursor::str)?,
            b"ownership" => self.ownership = optional(cursor, Cursor::str)?,
            b"session_id" => self.session_id = optional(cursor, Cursor::str)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn into_event(self, kind: Kind) -> Result<Raw<'p>, Fault> {
        let Self {
            hashes,
            parent,
            has_tokens,
            block_size,
            lora_id,
            medium,
            lora_name,
            extra_keys,
            group,
            spec_kind,
            sliding_window,
            locality,
            ownership,
            session_id,
        } = self;
        Ok(match kind {
            Kind::Cleared => Raw::Cleared,
            Kind::Removed => Raw::Removed(Removed {
                hashes: hashes.ok_or(Fault::Type)?,
                medium,
                group,
                locality,
                ownership,
            }),
            Kind::Stored => {
                if !has_tokens {
                    return Err(Fault::Type);
                }
                Raw::Stored(Stored {
                    hashes: hashes.ok_or(Fault::Type)?,
                    parent,
                    tokens: Cow::Borrowed(&[]),
                    block_size: block_size.ok_or(Fault::Type)?,
                    lora_id,
                    medium,
                    lora_name,
                    extra_keys,
                    group,
                    spec_kind,
                    sliding_window,
                    locality,
                    ownership,
                    session_id,
                })
            }
        })
    }
}

fn optional<'p, T>(
    cursor: &mut Cursor<'p>,
    read: impl Fn(&mut Cursor<'p>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    if cursor.nil() {
        Ok(None)
    } else {
        read(cursor).map(Some)
    }
}

pub(super) fn hash<'p>(cursor: &mut Cursor<'p>) -> Result<Hash<'p>, Fault> {
    if matches!(cursor.peek(), Some(Marker::Bin8 | Marker::Bin16 | Marker::Bin32)) {
        let digest = cursor.bin()?;
        return if digest.len() < 8 {
            Err(Fault::Type)
        } else {
            Ok(Hash::Bytes(digest))
        };
    }
    let number = cursor.integer()?;
    if let Ok(number) = u64::try_from(number) {
        Ok(Hash::Int(number))
    } else {
        i64::try_from(number).map(Hash::Negative).map_err(|_| Fault::Type)
    }
}

fn hashes<'p>(cursor: &mut Cursor<'p>) -> Result<Hashes<'p>, Fault> {
    let count = cursor.array()?;
    if count > MAX_HASHES {
        return Err(Fault::Type);
    }
    let start = *cursor;
    for _ in 0..count {
        hash(cursor)?;
    }
    Ok(Hashes {
        count,
        raw: start.up_to(*cursor),
    })
}

fn extra_keys<'p>(cursor: &mut Cursor<'p>) -> Result<ExtraKeys<'p>, Fault> {
    let count = cursor.array()?;
    if count > MAX_HASHES {
        return Err(Fault::Type);
    }
    let start = *cursor;
    for _ in 0..count {
        block_extras(cursor)?;
    }
    Ok(ExtraKeys {
        count,
        raw: start.up_to(*cursor),
    })
}

pub(super) fn block_extras<'p>(cursor: &mut Cursor<'p>) -> Result<BlockExtras<'p>, Fault> {
    if cursor.nil() {
        return Ok(BlockExtras { count: 0, raw: &[] });
    }
    let count = cursor.array()?;
    let start = *cursor;
    for _ in 0..count {
        cursor.skip()?;
    }
    Ok(BlockExtras {
        count,
        raw: start.up_to(*cursor),
    })
}

pub(super) fn extra_key<'p>(cursor: &mut Cursor<'p>) -> Result<ExtraKey<'p>, Fault> {
    let start = *cursor;
    let known = known_extra_key(cursor);
    if let Ok(Some(key)) = known {
        return Ok(key);
    }
    *cursor = start;
    cursor.skip()?;
    Ok(ExtraKey::Other(start.up_to(*cursor)))
}

fn known_extra_key<'p>(cursor: &mut Cursor<'p>) -> Result<Option<ExtraKey<'p>>, Fault> {
    let Some(Marker::FixArray(length)) = cursor.peek() else {
        return cursor.str().map(|text| Some(ExtraKey::Text(text)));
    };
    cursor.array()?;
    let first = cursor.str()?;
    Ok(match (first, length) {
        ("lora", 3) => {
            let name = cursor.str()?;
            cursor.skip()?;
            Some(ExtraKey::Lora(name))
        }
        ("mm", 3) => Some(ExtraKey::Item(cursor.str()?, cursor.int()?)),
        ("cache_salt", 2) => Some(ExtraKey::Salt(cursor.str()?)),
        (identifier, 2) => Some(ExtraKey::Item(identifier, cursor.int()?)),
        _ => None,
    })
}
