//! The fields of an event, in both encodings.

use std::borrow::Cow;

use super::{
    Event, ExtraKeys, Hash, Hashes, Removed, Stored,
    cursor::{Cursor, Fault},
    values::{extra_keys, hash, hashes, optional},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
pub(super) struct Fields<'p> {
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

/// A key of a map, or what stands in its place in an array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    BlockHashes,
    Parent,
    TokenIds,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    Group,
    SpecKind,
    SlidingWindow,
    Locality,
    Ownership,
    SessionId,
}

/// Positional order of the array encoding.
const STORED: [Field; 11] = [
    Field::BlockHashes,
    Field::Parent,
    Field::TokenIds,
    Field::BlockSize,
    Field::LoraId,
    Field::Medium,
    Field::LoraName,
    Field::ExtraKeys,
    Field::Group,
    Field::SpecKind,
    Field::SlidingWindow,
];
const REMOVED: [Field; 3] = [Field::BlockHashes, Field::Medium, Field::Group];

impl Field {
    /// Length and first letter leave one name to compare with, and comparing so few bytes is no call.
    fn of(name: &[u8]) -> Option<Self> {
        Some(match (name.len(), name.first()?) {
            (4, _) if name == b"type" => Self::Type,
            (6, _) if name == b"medium" => Self::Medium,
            (7, _) if name == b"lora_id" => Self::LoraId,
            (8, _) if name == b"locality" => Self::Locality,
            (9, b't') if name == b"token_ids" => Self::TokenIds,
            (9, b'l') if name == b"lora_name" => Self::LoraName,
            (9, b'g') if name == b"group_idx" => Self::Group,
            (9, b'o') if name == b"ownership" => Self::Ownership,
            (10, b'b') if name == b"block_size" => Self::BlockSize,
            (10, b'e') if name == b"extra_keys" => Self::ExtraKeys,
            (10, b's') if name == b"session_id" => Self::SessionId,
            (12, _) if name == b"block_hashes" => Self::BlockHashes,
            (17, _) if name == b"parent_block_hash" => Self::Parent,
            (18, _) if name == b"kv_cache_spec_kind" => Self::SpecKind,
            (28, _) if name == b"kv_cache_spec_sliding_window" => Self::SlidingWindow,
            _ => return None,
        })
    }
}

impl<'p> Fields<'p> {
    /// Reads an event. `None`: stepped over, because nobody knows its tag.
    pub(super) fn read_all(
        &mut self,
        cursor: &mut Cursor<'p>,
        tokens: &mut Vec<u32>,
        unknown: &mut u32,
    ) -> Result<Option<Kind>, Fault> {
        if cursor.at_map() {
            self.read_map(cursor, tokens, unknown)
        } else {
            self.read_array(cursor, tokens, unknown)
        }
    }

    fn read_map(
        &mut self,
        cursor: &mut Cursor<'p>,
        tokens: &mut Vec<u32>,
        unknown: &mut u32,
    ) -> Result<Option<Kind>, Fault> {
        let entries = cursor.map()?;
        let mut kind = None;
        for _ in 0..entries {
            match Field::of(cursor.text()?) {
                Some(Field::Type) => kind = Some(Kind::of(cursor.text()?)),
                Some(field) => self.read(field, cursor, tokens)?,
                None => {
                    *unknown = unknown.saturating_add(1);
                    cursor.skip()?;
                }
            }
        }
        kind.ok_or(Fault::Type)
    }

    fn read_array(
        &mut self,
        cursor: &mut Cursor<'p>,
        tokens: &mut Vec<u32>,
        unknown: &mut u32,
    ) -> Result<Option<Kind>, Fault> {
        let elements = cursor.array()?;
        if elements == 0 {
            return Err(Fault::Type);
        }
        let kind = Kind::of(cursor.text()?);
        let fields: &[Field] = match kind {
            Some(Kind::Stored) => &STORED,
            Some(Kind::Removed) => &REMOVED,
            Some(Kind::Cleared) | None => &[],
        };
        for at in 0..elements - 1 {
            if let Some(&field) = fields.get(at) {
                self.read(field, cursor, tokens)?;
                continue;
            }
            if kind.is_some() {
                *unknown = unknown.saturating_add(1);
            }
            cursor.skip()?;
        }
        Ok(kind)
    }

    /// Reads the value of a field.
    fn read(&mut self, field: Field, cursor: &mut Cursor<'p>, tokens: &mut Vec<u32>) -> Result<(), Fault> {
        match field {
            // it is read where the fields are told apart
            Field::Type => {}
            Field::BlockHashes => self.hashes = Some(hashes(cursor)?),
            Field::Parent => self.parent = optional(cursor, hash)?,
            Field::TokenIds => {
                tokens.clear();
                let count = cursor.array()?;
                cursor.tokens(count, tokens)?;
                self.has_tokens = true;
            }
            Field::BlockSize => self.block_size = Some(cursor.int()?),
            Field::LoraId => self.lora_id = optional(cursor, Cursor::int)?,
            Field::Medium => self.medium = optional(cursor, Cursor::str)?,
            Field::LoraName => self.lora_name = optional(cursor, Cursor::str)?,
            Field::ExtraKeys => self.extra_keys = optional(cursor, extra_keys)?,
            Field::Group => self.group = optional(cursor, Cursor::int)?,
            Field::SpecKind => self.spec_kind = optional(cursor, Cursor::str)?,
            Field::SlidingWindow => self.sliding_window = optional(cursor, Cursor::int)?,
            Field::Locality => self.locality = optional(cursor, Cursor::str)?,
            Field::Ownership => self.ownership = optional(cursor, Cursor::str)?,
            Field::SessionId => self.session_id = optional(cursor, Cursor::str)?,
        }
        Ok(())
    }

    /// The event, if all is there that its kind needs.
    pub(super) fn into_event<'t>(self, kind: Kind, tokens: &'t [u32]) -> Result<Event<'p, 't>, Fault> {
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
            Kind::Cleared => Event::Cleared,
            Kind::Removed => Event::Removed(Removed {
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
                Event::Stored(Stored {
                    hashes: hashes.ok_or(Fault::Type)?,
                    parent,
                    tokens: Cow::Borrowed(tokens),
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
