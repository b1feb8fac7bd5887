//! vLLM's own messages: a batch of `BlockStored` events in MessagePack, as its 0.24 and later write them.

use lmetric_prefix::TokenId;
use rmp::encode::{write_array_len, write_f64, write_map_len, write_nil, write_str, write_uint};

use crate::workload::BLOCK;

const MEMORY: &str = "a vector takes what is written";

/// Blocks that were stored one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Hash of the block before; none for the first of a prompt.
    pub parent: Option<u64>,
    /// Hashes.
    pub hashes: &'a [u64],
    /// Their tokens.
    pub tokens: &'a [TokenId],
}

/// One message with an event for each run.
pub fn batch(runs: &[Run<'_>]) -> Vec<u8> {
    message(&[], runs)
}

fn stored(out: &mut Vec<u8>, run: &Run<'_>) {
    write_map_len(out, 8).expect(MEMORY);
    text(out, "type", "BlockStored");
    write_str(out, "block_hashes").expect(MEMORY);
    write_array_len(out, run.hashes.len() as u32).expect(MEMORY);
    for hash in run.hashes {
        write_uint(out, *hash).expect(MEMORY);
    }
    write_str(out, "parent_block_hash").expect(MEMORY);
    match run.parent {
        Some(parent) => drop(write_uint(out, parent).expect(MEMORY)),
        None => write_nil(out).expect(MEMORY),
    }
    write_str(out, "token_ids").expect(MEMORY);
    write_array_len(out, run.tokens.len() as u32).expect(MEMORY);
    for token in run.tokens {
        write_uint(out, u64::from(*token)).expect(MEMORY);
    }
    write_str(out, "block_size").expect(MEMORY);
    write_uint(out, BLOCK as u64).expect(MEMORY);
    write_str(out, "lora_id").expect(MEMORY);
    write_nil(out).expect(MEMORY);
    text(out, "medium", "GPU");
    write_str(out, "lora_name").expect(MEMORY);
    write_nil(out).expect(MEMORY);
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    write_str(out, name).expect(MEMORY);
    write_str(out, value).expect(MEMORY);
}

/// A message that says that these blocks are gone.
pub fn removed(hashes: &[u64]) -> Vec<u8> {
    message(&[hashes], &[])
}

/// What one step of an engine did: `gone` gave way, if any, and the runs were stored.
pub fn step(gone: &[u64], runs: &[Run<'_>]) -> Vec<u8> {
    match gone {
        [] => batch(runs),
        _ => message(&[gone], runs),
    }
}

fn message(gone: &[&[u64]], runs: &[Run<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    write_array_len(&mut out, 3).expect(MEMORY);
    write_f64(&mut out, 0.5).expect(MEMORY);
    write_array_len(&mut out, (gone.len() + runs.len()) as u32).expect(MEMORY);
    for hashes in gone {
        remove(&mut out, hashes);
    }
    for run in runs {
        stored(&mut out, run);
    }
    write_uint(&mut out, 0).expect(MEMORY);
    out
}

fn remove(out: &mut Vec<u8>, hashes: &[u64]) {
    write_map_len(out, 3).expect(MEMORY);
    text(out, "type", "BlockRemoved");
    write_str(out, "block_hashes").expect(MEMORY);
    write_array_len(out, hashes.len() as u32).expect(MEMORY);
    for hash in hashes {
        write_uint(out, *hash).expect(MEMORY);
    }
    text(out, "medium", "GPU");
}
