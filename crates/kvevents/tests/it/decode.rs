//! Every captured message decodes to exactly what an independent decoder made of it.

use std::fmt::Write;

use lmetric_kvevents::wire::{BlockExtras, Event, ExtraKey, ExtraKeys, Hash, Hashes, decode_batch};
use serde_json::{Map, Value, json};

use crate::captures;

fn hash(hash: Hash<'_>) -> Value {
    match hash {
        Hash::Int(number) => json!(number),
        Hash::Negative(number) => json!(number),
        Hash::Bytes(bytes) => {
            let mut hex = String::new();
            for byte in bytes {
                write!(hex, "{byte:02x}").unwrap();
            }
            json!({ "bytes": hex })
        }
    }
}

fn hashes(list: &Hashes<'_>) -> Value {
    assert_eq!(list.iter().count(), list.len());
    list.iter().map(hash).collect()
}

fn extra_key(key: ExtraKey<'_>) -> Value {
    match key {
        ExtraKey::Text(text) => json!(text),
        ExtraKey::Item(identifier, offset) => json!([identifier, offset]),
        ExtraKey::Lora(_) | ExtraKey::Salt(_) | ExtraKey::Other(_) => panic!("no capture has {key:?}"),
    }
}

fn extra_keys(keys: &ExtraKeys<'_>) -> Value {
    assert_eq!(keys.iter().count(), keys.len());
    let block = |block: BlockExtras<'_>| -> Value {
        if block.is_empty() {
            Value::Null
        } else {
            block.iter().map(extra_key).collect()
        }
    };
    keys.iter().map(block).collect()
}

/// Name and value of every field of an event, in the positional order.
fn fields(event: &Event<'_, '_>) -> Vec<(&'static str, Value)> {
    match event {
        Event::Stored(stored) => vec![
            ("type", json!("BlockStored")),
            ("block_hashes", hashes(&stored.hashes)),
            ("parent_block_hash", stored.parent.map_or(Value::Null, hash)),
            ("token_ids", json!(stored.tokens)),
            ("block_size", json!(stored.block_size)),
            ("lora_id", json!(stored.lora_id)),
            ("medium", json!(stored.medium)),
            ("lora_name", json!(stored.lora_name)),
            (
                "extra_keys",
                stored.extra_keys.as_ref().map_or(Value::Null, extra_keys),
            ),
            ("group_idx", json!(stored.group)),
            ("kv_cache_spec_kind", json!(stored.spec_kind)),
            ("kv_cache_spec_sliding_window", json!(stored.sliding_window)),
            ("locality", json!(stored.locality)),
            ("ownership", json!(stored.ownership)),
            ("session_id", json!(stored.session_id)),
        ],
        Event::Removed(removed) => vec![
            ("type", json!("BlockRemoved")),
            ("block_hashes", hashes(&removed.hashes)),
            ("medium", json!(removed.medium)),
            ("group_idx", json!(removed.group)),
            ("locality", json!(removed.locality)),
            ("ownership", json!(removed.ownership)),
        ],
        Event::Cleared => vec![("type", json!("AllBlocksCleared"))],
    }
}

/// The event written the way `like` is: an array of as many elements, or a map with the same optional keys.
fn written_like(event: &Event<'_, '_>, like: &Value) -> Value {
    let mut fields = fields(event);
    match like {
        Value::Array(elements) => {
            let rest = fields.split_off(elements.len());
            assert!(
                rest.iter().all(|(_, value)| value.is_null()),
                "{rest:?} beyond {like}"
            );
            fields.into_iter().map(|(_, value)| value).collect()
        }
        Value::Object(map) => Value::Object(
            fields
                .into_iter()
                .filter(|(name, value)| !value.is_null() || map.contains_key(*name))
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<Map<_, _>>(),
        ),
        _ => panic!("{like}"),
    }
}

#[test]
fn every_captured_message_decodes_to_exactly_its_decoded_side() {
    let mut messages = 0;
    for name in captures::all_live() {
        for line in captures::live(&name) {
            let batch = decode_batch(line.payload()).unwrap();
            assert_eq!(
                (batch.skipped, batch.unknown_fields),
                (0, 0),
                "{name} seq {}",
                line.seq
            );
            let events: Value = batch
                .events
                .iter()
                .zip(line.events())
                .map(|(event, like)| written_like(event, like))
                .collect();
            assert_eq!(batch.timestamp, line.timestamp, "{name} seq {}", line.seq);
            assert_eq!(
                json!([events, batch.rank]),
                json!(line.decoded.as_array().unwrap()[1..]),
                "{name} seq {}",
                line.seq
            );
            messages += 1;
        }
    }
    assert_eq!(messages, 557);
}
