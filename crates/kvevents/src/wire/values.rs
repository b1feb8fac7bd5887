//! Hashes and extra keys, which are checked when a batch is read and decoded when somebody wants them.

use rmp::Marker;

use super::{
    BlockExtras, ExtraKey, ExtraKeys, Hash, Hashes, MAX_HASHES,
    cursor::{Cursor, Fault},
};

pub(super) fn optional<'p, T>(
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
    if let Some(number) = cursor.long_integer() {
        return Ok(Hash::Int(number));
    }
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

pub(super) fn hashes<'p>(cursor: &mut Cursor<'p>) -> Result<Hashes<'p>, Fault> {
    let count = cursor.array()?;
    if count > MAX_HASHES {
        return Err(Fault::Type);
    }
    if let Some(raw) = cursor.long_integers(count) {
        return Ok(Hashes { count, raw });
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

pub(super) fn extra_keys<'p>(cursor: &mut Cursor<'p>) -> Result<ExtraKeys<'p>, Fault> {
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
