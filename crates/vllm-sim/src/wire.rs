//! KV events as vLLM puts them on the wire: one MessagePack payload per step.

use bytes::Bytes;
use lmetric_engine::{BlockHash, Event, Events, RequestId};
use rmp::encode::{write_array_len, write_bin, write_f64, write_map_len, write_nil, write_str, write_uint};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::args::EventFormat;

/// What an event shows of its request beside tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra<'a> {
    /// Number and name of the adapter.
    pub adapter: Option<(u32, &'a str)>,
    /// Cache salt.
    pub salt: Option<&'a str>,
    /// Session id.
    pub session: Option<&'a str>,
}

/// How a stream of batches is written.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// Maps or arrays.
    pub format: EventFormat,
    /// Hashes as 32 bytes instead of integers.
    pub bytes_hashes: bool,
    /// Tokens per block.
    pub block_size: u32,
}

const INFALLIBLE: &str = "writing to a vector does not fail";

impl Encoder {
    /// The payload of one message: time, events, rank. None if no event is to be shown.
    pub fn batch<'a>(
        self,
        seconds: f64,
        events: &Events,
        rank: u32,
        extra: impl Fn(RequestId) -> Extra<'a>,
    ) -> Option<Bytes> {
        // vLLM 0.16 knows no report of reused blocks
        let shown = |event: &Event<'_>| {
            self.format == EventFormat::Map || !matches!(event, Event::Stored { repeated: true, .. })
        };
        let count = events.iter().filter(shown).count();
        if count == 0 {
            return None;
        }
        let mut out = Vec::with_capacity(512);
        write_array_len(&mut out, 3).expect(INFALLIBLE);
        write_f64(&mut out, seconds).expect(INFALLIBLE);
        write_array_len(&mut out, count as u32).expect(INFALLIBLE);
        for event in events.iter().filter(shown) {
            match self.format {
                EventFormat::Map => self.map(&mut out, &event, &extra),
                EventFormat::Array => self.array(&mut out, &event, &extra),
            }
        }
        write_uint(&mut out, u64::from(rank)).expect(INFALLIBLE);
        Some(out.into())
    }

    fn map<'a>(self, out: &mut Vec<u8>, event: &Event<'_>, extra: impl Fn(RequestId) -> Extra<'a>) {
        match *event {
            Event::Stored {
                request,
                first_block,
                parent,
                hashes,
                tokens,
                repeated: _,
            } => {
                let extra = extra(request);
                map_len(out, if extra.session.is_some() { 12 } else { 11 });
                text(out, "type");
                text(out, "BlockStored");
                text(out, "block_hashes");
                self.hashes(out, hashes);
                text(out, "parent_block_hash");
                self.parent(out, parent);
                text(out, "token_ids");
                integers(out, tokens);
                text(out, "block_size");
                integer(out, u64::from(self.block_size));
                text(out, "lora_id");
                optional(out, extra.adapter, |out, (id, _)| integer(out, u64::from(id)));
                text(out, "medium");
                text(out, "GPU");
                text(out, "lora_name");
                optional(out, extra.adapter, |out, (_, name)| text(out, name));
                text(out, "extra_keys");
                extra_keys(out, first_block, hashes.len(), &extra);
                text(out, "group_idx");
                integer(out, 0);
                text(out, "kv_cache_spec_kind");
                text(out, "full_attention");
                if let Some(session) = extra.session {
                    text(out, "session_id");
                    text(out, session);
                }
            }
            Event::Removed { hash } => {
                map_len(out, 4);
                text(out, "type");
                text(out, "BlockRemoved");
                text(out, "block_hashes");
                self.hashes(out, &[hash]);
                text(out, "medium");
                text(out, "GPU");
                text(out, "group_idx");
                integer(out, 0);
            }
            Event::Cleared => {
                map_len(out, 1);
                text(out, "type");
                text(out, "AllBlocksCleared");
            }
        }
    }

    fn array<'a>(self, out: &mut Vec<u8>, event: &Event<'_>, extra: impl Fn(RequestId) -> Extra<'a>) {
        match *event {
            Event::Stored {
                request,
                parent,
                hashes,
                tokens,
                ..
            } => {
                let extra = extra(request);
                array_len(out, 8);
                text(out, "BlockStored");
                self.hashes(out, hashes);
                self.parent(out, parent);
                integers(out, tokens);
                integer(out, u64::from(self.block_size));
                optional(out, extra.adapter, |out, (id, _)| integer(out, u64::from(id)));
                text(out, "GPU");
                optional(out, extra.adapter, |out, (_, name)| text(out, name));
            }
            Event::Removed { hash } => {
                array_len(out, 3);
                text(out, "BlockRemoved");
                self.hashes(out, &[hash]);
                text(out, "GPU");
            }
            Event::Cleared => {
                array_len(out, 1);
                text(out, "AllBlocksCleared");
            }
        }
    }

    fn hashes(self, out: &mut Vec<u8>, hashes: &[BlockHash]) {
        array_len(out, hashes.len());
        for hash in hashes {
            self.hash(out, *hash);
        }
    }

    fn parent(self, out: &mut Vec<u8>, parent: Option<BlockHash>) {
        optional(out, parent, |out, hash| self.hash(out, hash));
    }

    /// As an integer, or as a digest whose last eight bytes are that integer.
    fn hash(self, out: &mut Vec<u8>, hash: BlockHash) {
        if !self.bytes_hashes {
            integer(out, hash.0);
            return;
        }
        let mut digest = [0_u8; 32];
        for (part, bytes) in digest.chunks_exact_mut(8).enumerate() {
            let word = if part == 3 {
                hash.0
            } else {
                xxh3_64_with_seed(&[part as u8], hash.0)
            };
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        write_bin(out, &digest).expect(INFALLIBLE);
    }
}

/// One entry per block: the adapter's name in every one, the salt in the prompt's first.
fn extra_keys(out: &mut Vec<u8>, first_block: u32, blocks: usize, extra: &Extra<'_>) {
    array_len(out, blocks);
    for block in 0..blocks {
        let salt = extra.salt.filter(|_| block == 0 && first_block == 0);
        let adapter = extra.adapter.map(|(_, name)| name);
        match adapter.iter().chain(&salt).count() {
            0 => write_nil(out).expect(INFALLIBLE),
            keys => {
                array_len(out, keys);
                for key in adapter.iter().chain(&salt) {
                    text(out, key);
                }
            }
        }
    }
}

fn integers(out: &mut Vec<u8>, values: &[u32]) {
    array_len(out, values.len());
    for &value in values {
        integer(out, u64::from(value));
    }
}

fn integer(out: &mut Vec<u8>, value: u64) {
    write_uint(out, value).expect(INFALLIBLE);
}

fn text(out: &mut Vec<u8>, value: &str) {
    write_str(out, value).expect(INFALLIBLE);
}

fn array_len(out: &mut Vec<u8>, len: usize) {
    write_array_len(out, len as u32).expect(INFALLIBLE);
}

fn map_len(out: &mut Vec<u8>, len: u32) {
    write_map_len(out, len).expect(INFALLIBLE);
}

fn optional<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => write(out, value),
        None => write_nil(out).expect(INFALLIBLE),
    }
}
