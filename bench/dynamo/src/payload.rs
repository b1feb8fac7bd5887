//! vLLM's own messages: a batch of `BlockStored` events in MessagePack, as its 0.24 and later write them and as those before did.

use rmp::encode::{write_array_len, write_f64, write_map_len, write_nil, write_str, write_uint};

use crate::workload::BLOCK;

const MEMORY: &str = "a vector takes what is written";

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Fields by name: vLLM 0.24 and later.
    Map,
    /// Fields by position: before.
    Array,
}

/// Fresh blocks that begin a prompt.
#[derive(Clone, Debug)]
pub struct Run {
    /// Hashes.
    pub hashes: Vec<u64>,
    /// Their tokens.
    pub tokens: Vec<u32>,
}

/// One message with an event for each run.
pub fn batch(layout: Layout, runs: &[Run]) -> Vec<u8> {
    let mut out = Vec::new();
    write_array_len(&mut out, 3).expect(MEMORY);
    write_f64(&mut out, 0.5).expect(MEMORY);
    write_array_len(&mut out, runs.len() as u32).expect(MEMORY);
    for run in runs {
        match layout {
            Layout::Map => write_map_len(&mut out, 8).map(drop).expect(MEMORY),
            Layout::Array => write_array_len(&mut out, 8).map(drop).expect(MEMORY),
        }
        let name = |out: &mut Vec<u8>, name: &str| {
            if layout == Layout::Map {
                write_str(out, name).expect(MEMORY);
            }
        };
        name(&mut out, "type");
        write_str(&mut out, "BlockStored").expect(MEMORY);
        name(&mut out, "block_hashes");
        numbers(&mut out, run.hashes.iter().copied());
        name(&mut out, "parent_block_hash");
        write_nil(&mut out).expect(MEMORY);
        name(&mut out, "token_ids");
        numbers(&mut out, run.tokens.iter().map(|token| u64::from(*token)));
        name(&mut out, "block_size");
        write_uint(&mut out, u64::from(BLOCK)).expect(MEMORY);
        name(&mut out, "lora_id");
        write_nil(&mut out).expect(MEMORY);
        name(&mut out, "medium");
        write_str(&mut out, "GPU").expect(MEMORY);
        name(&mut out, "lora_name");
        write_nil(&mut out).expect(MEMORY);
    }
    write_uint(&mut out, 0).expect(MEMORY);
    out
}

fn numbers(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64>) {
    write_array_len(out, numbers.len() as u32).expect(MEMORY);
    for number in numbers {
        write_uint(out, number).expect(MEMORY);
    }
}
