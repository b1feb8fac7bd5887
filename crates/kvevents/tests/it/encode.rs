//! Batches as vLLM writes them, for prompts made up here.

use std::ops::Range;

use lmetric_prefix::{BlockKey, BlockSize, ContentHash};
use rmpv::Value;

use crate::plain;

pub(crate) const BLOCK: u32 = 16;

/// A batch of these events at `time`.
pub(crate) fn batch_at(time: f64, events: Vec<Value>) -> Vec<u8> {
    let batch = Value::Array(vec![Value::F64(time), Value::Array(events), Value::from(0)]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &batch).unwrap();
    bytes
}

pub(crate) fn batch(events: Vec<Value>) -> Vec<u8> {
    batch_at(1_796_013_152.25, events)
}

pub(crate) fn list<T: Into<Value> + Clone>(values: &[T]) -> Value {
    Value::Array(values.iter().cloned().map(Into::into).collect())
}

/// `BlockStored` of a base-model request, as vLLM 0.32 writes it.
pub(crate) fn stored(hashes: &[u64], parent: Option<u64>, tokens: &[u32]) -> Value {
    Value::Map(vec![
        ("type".into(), "BlockStored".into()),
        ("block_hashes".into(), list(hashes)),
        ("parent_block_hash".into(), parent.map_or(Value::Nil, Value::from)),
        ("token_ids".into(), list(tokens)),
        ("block_size".into(), BLOCK.into()),
        ("lora_id".into(), Value::Nil),
        ("medium".into(), "GPU".into()),
        ("lora_name".into(), Value::Nil),
        ("extra_keys".into(), Value::Array(vec![Value::Nil; hashes.len()])),
        ("group_idx".into(), 0.into()),
        ("kv_cache_spec_kind".into(), "full_attention".into()),
    ])
}

pub(crate) fn removed(hashes: &[u64]) -> Value {
    Value::Map(vec![
        ("type".into(), "BlockRemoved".into()),
        ("block_hashes".into(), list(hashes)),
        ("medium".into(), "GPU".into()),
        ("group_idx".into(), 0.into()),
    ])
}

pub(crate) fn all_cleared() -> Value {
    Value::Map(vec![("type".into(), "AllBlocksCleared".into())])
}

/// The event with one field changed, or removed when `value` is none.
pub(crate) fn with(event: Value, field: &str, value: Option<Value>) -> Value {
    let Value::Map(mut entries) = event else {
        panic!("{event}")
    };
    entries.retain(|(key, _)| key.as_str() != Some(field));
    entries.extend(value.map(|value| (field.into(), value)));
    Value::Map(entries)
}

/// A prompt, its keys, and hashes that an engine might give its blocks.
pub(crate) struct Chain {
    tokens: Vec<u32>,
    pub(crate) hashes: Vec<u64>,
    pub(crate) keys: Vec<BlockKey>,
    pub(crate) contents: Vec<ContentHash>,
}

impl Chain {
    /// A prompt that shares nothing with those of other numbers.
    pub(crate) fn new(number: u32, blocks: u32) -> Self {
        Self::of((0..blocks * BLOCK).map(|at| number * 100_000 + at).collect())
    }

    pub(crate) fn of(tokens: Vec<u32>) -> Self {
        Self::in_space(tokens, None, None)
    }

    pub(crate) fn in_space(tokens: Vec<u32>, lora: Option<&str>, salt: Option<&str>) -> Self {
        let size = BlockSize::new(BLOCK).unwrap();
        let root = plain::root(lora, salt, BLOCK);
        let chain = lmetric_prefix::Chain::new(root, size, &tokens);
        // what an engine hashes is as good as another root
        let engine = lmetric_prefix::Chain::new(BlockKey::from_raw(!root.get()), size, &tokens);
        Self {
            tokens,
            hashes: engine.keys.iter().map(|key| key.get()).collect(),
            keys: chain.keys,
            contents: chain.contents,
        }
    }

    /// `BlockStored` of these blocks.
    pub(crate) fn event(&self, blocks: Range<usize>) -> Value {
        let parent = blocks.start.checked_sub(1).map(|before| self.hashes[before]);
        let tokens = blocks.start * BLOCK as usize..blocks.end * BLOCK as usize;
        stored(&self.hashes[blocks], parent, &self.tokens[tokens])
    }

    pub(crate) fn stored(&self, blocks: Range<usize>) -> Vec<u8> {
        batch(vec![self.event(blocks)])
    }
}

/// A block whose parent nobody has ever seen.
pub(crate) fn orphan(number: u64) -> Vec<u8> {
    batch(vec![stored(&[number], Some(!number), &[7; BLOCK as usize])])
}

pub(crate) fn cleared() -> Vec<u8> {
    batch(vec![all_cleared()])
}
