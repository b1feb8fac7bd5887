//! Sends what was decoded: maps, as vLLM from 0.24 on writes them.

use lmetric_kvevents::wire::{Batch, Event, ExtraKey, ExtraKeys, Hash, Hashes, Removed, Stored};
use rmp::encode as to;

/// Writing to memory does not fail.
const MEMORY: &str = "a vector takes what is written";

pub(super) fn batch(batch: &Batch<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    to::write_array_len(&mut out, 3).expect(MEMORY);
    to::write_f64(&mut out, batch.timestamp).expect(MEMORY);
    to::write_array_len(&mut out, batch.events.len() as u32).expect(MEMORY);
    for event in &batch.events {
        put_event(&mut out, event);
    }
    put_number(&mut out, batch.rank);
    out
}

fn put_event(out: &mut Vec<u8>, event: &Event<'_, '_>) {
    match event {
        Event::Stored(stored) => put_stored(out, stored),
        Event::Removed(removed) => put_removed(out, removed),
        Event::Cleared => {
            to::write_map_len(out, 1).expect(MEMORY);
            put_field(out, "type", "AllBlocksCleared");
        }
    }
}

fn put_stored(out: &mut Vec<u8>, stored: &Stored<'_, '_>) {
    let Stored {
        hashes,
        parent,
        tokens,
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
    } = stored;
    to::write_map_len(out, 15).expect(MEMORY);
    put_field(out, "type", "BlockStored");
    put_hashes(out, *hashes);
    to::write_str(out, "parent_block_hash").expect(MEMORY);
    match parent {
        Some(parent) => put_hash(out, *parent),
        None => to::write_nil(out).expect(MEMORY),
    }
    to::write_str(out, "token_ids").expect(MEMORY);
    to::write_array_len(out, tokens.len() as u32).expect(MEMORY);
    for token in tokens.iter() {
        to::write_uint(out, u64::from(*token)).expect(MEMORY);
    }
    for (name, number) in [
        ("block_size", Some(*block_size)),
        ("lora_id", *lora_id),
        ("group_idx", *group),
        ("kv_cache_spec_sliding_window", *sliding_window),
    ] {
        to::write_str(out, name).expect(MEMORY);
        put_number(out, number);
    }
    for (name, text) in [
        ("medium", medium),
        ("lora_name", lora_name),
        ("kv_cache_spec_kind", spec_kind),
        ("locality", locality),
        ("ownership", ownership),
        ("session_id", session_id),
    ] {
        put_text(out, name, *text);
    }
    to::write_str(out, "extra_keys").expect(MEMORY);
    match extra_keys {
        Some(keys) => put_extra_keys(out, *keys),
        None => to::write_nil(out).expect(MEMORY),
    }
}

fn put_removed(out: &mut Vec<u8>, removed: &Removed<'_>) {
    let Removed {
        hashes,
        medium,
        group,
        locality,
        ownership,
    } = removed;
    to::write_map_len(out, 6).expect(MEMORY);
    put_field(out, "type", "BlockRemoved");
    put_hashes(out, *hashes);
    to::write_str(out, "group_idx").expect(MEMORY);
    put_number(out, *group);
    put_text(out, "medium", *medium);
    put_text(out, "locality", *locality);
    put_text(out, "ownership", *ownership);
}

fn put_hashes(out: &mut Vec<u8>, hashes: Hashes<'_>) {
    to::write_str(out, "block_hashes").expect(MEMORY);
    to::write_array_len(out, hashes.len() as u32).expect(MEMORY);
    let mut put = 0;
    for hash in hashes.iter() {
        put_hash(out, hash);
        put += 1;
    }
    assert_eq!(put, hashes.len(), "a list of hashes ends early");
}

fn put_hash(out: &mut Vec<u8>, hash: Hash<'_>) {
    match hash {
        Hash::Int(number) => drop(to::write_uint(out, number).expect(MEMORY)),
        Hash::Negative(number) => drop(to::write_sint(out, number).expect(MEMORY)),
        Hash::Bytes(digest) => to::write_bin(out, digest).expect(MEMORY),
    }
}

fn put_extra_keys(out: &mut Vec<u8>, keys: ExtraKeys<'_>) {
    to::write_array_len(out, keys.len() as u32).expect(MEMORY);
    let mut blocks = 0;
    for block in keys.iter() {
        let keys: Vec<_> = block.iter().collect();
        to::write_array_len(out, keys.len() as u32).expect(MEMORY);
        for key in keys {
            put_extra_key(out, key);
        }
        blocks += 1;
    }
    assert_eq!(blocks, keys.len(), "a list of extra keys ends early");
}

fn put_extra_key(out: &mut Vec<u8>, key: ExtraKey<'_>) {
    match key {
        ExtraKey::Text(text) => to::write_str(out, text).expect(MEMORY),
        ExtraKey::Item(identifier, offset) => {
            to::write_array_len(out, 3).expect(MEMORY);
            put_field(out, "mm", identifier);
            to::write_sint(out, offset).expect(MEMORY);
        }
        ExtraKey::Lora(name) => {
            to::write_array_len(out, 3).expect(MEMORY);
            put_field(out, "lora", name);
            to::write_nil(out).expect(MEMORY);
        }
        ExtraKey::Salt(salt) => {
            to::write_array_len(out, 2).expect(MEMORY);
            put_field(out, "cache_salt", salt);
        }
        ExtraKey::Other(bytes) => out.extend_from_slice(bytes),
    }
}

fn put_field(out: &mut Vec<u8>, name: &str, value: &str) {
    to::write_str(out, name).expect(MEMORY);
    to::write_str(out, value).expect(MEMORY);
}

fn put_text(out: &mut Vec<u8>, name: &str, value: Option<&str>) {
    to::write_str(out, name).expect(MEMORY);
    match value {
        Some(text) => to::write_str(out, text).expect(MEMORY),
        None => to::write_nil(out).expect(MEMORY),
    }
}

fn put_number(out: &mut Vec<u8>, number: Option<i64>) {
    match number {
        Some(number) => drop(to::write_sint(out, number).expect(MEMORY)),
        None => to::write_nil(out).expect(MEMORY),
    }
}
