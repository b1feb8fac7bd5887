//! Batches as vLLM 0.32 writes them, for prompts made up here.

use std::ops::Range;

use lmetric_prefix::{BlockKey, BlockSize};

use crate::plain;

pub(crate) const BLOCK: u32 = 16;

/// A prompt, its keys, and hashes that an engine might give its blocks.
pub(crate) struct Chain {
    number: u64,
    tokens: Vec<u32>,
    pub(crate) keys: Vec<BlockKey>,
}

fn batch(event: rmpv::Value) -> Vec<u8> {
    use rmpv::Value;
    let batch = Value::Array(vec![
        Value::F64(1_796_013_152.25),
        Value::Array(vec![event]),
        Value::from(0),
    ]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &batch).unwrap();
    bytes
}

fn stored(hashes: Vec<u64>, parent: Option<u64>, tokens: &[u32]) -> Vec<u8> {
    use rmpv::Value;
    let list = |values: Vec<Value>| Value::Array(values);
    batch(Value::Map(vec![
        ("type".into(), "BlockStored".into()),
        (
            "block_hashes".into(),
            list(hashes.iter().map(|&hash| hash.into()).collect()),
        ),
        ("parent_block_hash".into(), parent.map_or(Value::Nil, Value::from)),
        (
            "token_ids".into(),
            list(tokens.iter().map(|&token| token.into()).collect()),
        ),
        ("block_size".into(), BLOCK.into()),
        ("lora_id".into(), Value::Nil),
        ("medium".into(), "GPU".into()),
        ("lora_name".into(), Value::Nil),
        ("extra_keys".into(), list(vec![Value::Nil; hashes.len()])),
        ("group_idx".into(), 0.into()),
        ("kv_cache_spec_kind".into(), "full_attention".into()),
    ]))
}

impl Chain {
    pub(crate) fn new(number: u64, blocks: u32) -> Self {
        let tokens: Vec<u32> = (0..blocks * BLOCK)
            .map(|at| number as u32 * 100_000 + at)
            .collect();
        let size = BlockSize::new(BLOCK).unwrap();
        let keys = lmetric_prefix::Chain::new(plain::root(None, None, BLOCK), size, &tokens).keys;
        Self { number, tokens, keys }
    }

    fn hash(&self, block: usize) -> u64 {
        (self.number << 32 | block as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    pub(crate) fn stored(&self, blocks: Range<usize>) -> Vec<u8> {
        let parent = blocks.start.checked_sub(1).map(|before| self.hash(before));
        let tokens = blocks.start * BLOCK as usize..blocks.end * BLOCK as usize;
        stored(
            blocks.map(|block| self.hash(block)).collect(),
            parent,
            &self.tokens[tokens],
        )
    }
}

/// A block whose parent nobody has ever seen.
pub(crate) fn orphan(number: u64) -> Vec<u8> {
    stored(vec![number], Some(!number), &[7; BLOCK as usize])
}

pub(crate) fn cleared() -> Vec<u8> {
    batch(rmpv::Value::Map(vec![("type".into(), "AllBlocksCleared".into())]))
}
