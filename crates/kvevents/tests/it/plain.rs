//! What an engine holds, recounted the plain way from the decoded side of a capture; and an index that a
//! source's operations are applied to.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use lmetric_kvevents::{Adopt, Command, Generation, Op, Outcome, Source, SourceConfig};
use lmetric_prefix::{BlockKey, BlockSize, ContentHash, KeySeed, KeySpace, PrefixIndex, SourceId};
use serde_json::Value;

use crate::captures::hex;

pub(crate) const GROUP: &str = "tiny";

pub(crate) fn seed() -> KeySeed {
    KeySeed::new(17)
}

pub(crate) fn config(replay: bool) -> SourceConfig {
    SourceConfig {
        group: Arc::from(GROUP),
        seed: seed(),
        rank: None,
        replay,
        gpu_blocks: 4_096,
    }
}

pub(crate) fn root(lora: Option<&str>, salt: Option<&str>, block_size: u32) -> BlockKey {
    seed().root(&KeySpace {
        group: GROUP,
        lora,
        salt,
        block_size: BlockSize::new(block_size).unwrap(),
    })
}

/// References and keys of the blocks of one full-attention group, by engine hash.
#[derive(Default)]
pub(crate) struct Plain {
    copies: HashMap<(u64, u64), i64>,
    keys: HashMap<(u64, u64), BlockKey>,
    full_attention: HashMap<u64, bool>,
}

fn number(hash: &Value) -> u64 {
    match hash.get("bytes") {
        Some(digest) => {
            let digest = hex(digest.as_str().unwrap());
            u64::from_be_bytes(digest[digest.len() - 8..].try_into().unwrap())
        }
        None => hash.as_u64().unwrap(),
    }
}

impl Plain {
    /// `reported`: stores of blocks that are held already add nothing.
    pub(crate) fn apply(&mut self, event: &Value, reported: bool) {
        let field = |name: &str, position: usize| match event {
            Value::Array(fields) => fields.get(position).cloned().unwrap_or_default(),
            map => map.get(name).cloned().unwrap_or_default(),
        };
        let tag = field("type", 0);
        match tag.as_str().unwrap() {
            "AllBlocksCleared" => {
                self.copies.clear();
                self.keys.clear();
            }
            "BlockRemoved" => {
                let group = field("group_idx", 3).as_u64().unwrap_or(0);
                for hash in field("block_hashes", 1).as_array().unwrap() {
                    if let Some(copies) = self.copies.get_mut(&(group, number(hash))) {
                        *copies -= 1;
                    }
                }
                self.copies.retain(|_, copies| *copies > 0);
            }
            "BlockStored" => {
                let group = field("group_idx", 9).as_u64().unwrap_or(0);
                let kind = field("kv_cache_spec_kind", 10);
                let full = kind.as_str().is_none_or(|kind| kind == "full_attention");
                self.full_attention.insert(group, full);
                if full {
                    self.store(group, &field, reported);
                }
            }
            other => panic!("{other}"),
        }
    }

    fn store(&mut self, group: u64, field: &dyn Fn(&str, usize) -> Value, reported: bool) {
        let size = field("block_size", 4).as_u64().unwrap() as u32;
        let tokens: Vec<u32> = serde_json::from_value(field("token_ids", 3)).unwrap();
        let extra = field("extra_keys", 8);
        let lora = field("lora_name", 7);
        let lora = lora.as_str();
        let parent = field("parent_block_hash", 2);
        let mut key = if parent.is_null() {
            let salt = extra.get(0).and_then(Value::as_array).and_then(|keys| {
                keys.iter()
                    .filter_map(Value::as_str)
                    .rfind(|text| Some(*text) != lora)
            });
            root(lora, salt, size)
        } else {
            self.keys[&(group, number(&parent))]
        };
        for (hash, block) in field("block_hashes", 1)
            .as_array()
            .unwrap()
            .iter()
            .zip(tokens.chunks_exact(size as usize))
        {
            key = key.child(ContentHash::of(block));
            let hash = (group, number(hash));
            self.keys.insert(hash, key);
            let copies = self.copies.entry(hash).or_insert(0);
            if !reported || *copies == 0 {
                *copies += 1;
            }
        }
    }

    pub(crate) fn held(&self) -> BTreeSet<u64> {
        self.copies.keys().map(|hash| self.keys[hash].get()).collect()
    }
}

/// Applies what a source says to an index, and keeps what it says it holds.
pub(crate) struct Applied {
    pub(crate) index: PrefixIndex,
    pub(crate) held: BTreeSet<u64>,
    pub(crate) gapless: bool,
    pub(crate) stores: Vec<(BlockKey, BlockKey)>,
    pub(crate) adopted: Vec<(BlockKey, BlockKey)>,
    pub(crate) commands: Vec<Command>,
}

pub(crate) const ID: SourceId = SourceId(5);

impl Applied {
    pub(crate) fn new() -> Self {
        Self {
            index: PrefixIndex::new(),
            held: BTreeSet::new(),
            gapless: true,
            stores: Vec::new(),
            adopted: Vec::new(),
            commands: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, out: Outcome) {
        for op in out.ops {
            match op {
                Op::Store { parent, key } => {
                    self.stores.push((parent, key));
                    self.index.insert(ID, key);
                    self.held.insert(key.get());
                }
                Op::Adopt { parent, key } => {
                    self.adopted.push((parent, key));
                    self.index.insert(ID, key);
                    self.held.insert(key.get());
                }
                Op::Infer { key } => {
                    assert!(self.index.insert(ID, key), "inferred what is held");
                    self.held.insert(key.get());
                }
                Op::Remove { key } => {
                    assert!(self.index.remove(ID, key), "removed what is not held");
                    assert!(self.held.remove(&key.get()));
                }
                Op::Clear => {
                    self.index.clear(ID);
                    self.held.clear();
                    self.gapless = true;
                }
                Op::Gapless(gapless) => {
                    assert_ne!(gapless, self.gapless);
                    self.index.set_gapless(ID, gapless);
                    self.gapless = gapless;
                }
            }
            assert_eq!(self.index.held_by(ID), self.held.len());
        }
        self.commands.extend(out.command);
    }
}

/// A source that is connected, without replay, and what it says it holds.
pub(crate) struct Fed {
    pub(crate) source: Source,
    pub(crate) applied: Applied,
    generation: Generation,
    next: u64,
}

impl Fed {
    pub(crate) fn new(gpu_blocks: u32) -> Self {
        Self::with(SourceConfig {
            gpu_blocks,
            ..config(false)
        })
    }

    pub(crate) fn with(config: SourceConfig) -> Self {
        let mut source = Source::new(config);
        let generation = source.connected(&mut Outcome::default());
        Self {
            source,
            applied: Applied::new(),
            generation,
            next: 0,
        }
    }

    /// The messages before `seq` never come.
    pub(crate) fn skip_to(&mut self, seq: u64) {
        self.next = seq;
    }

    /// The next message.
    pub(crate) fn feed(&mut self, payload: &[u8]) {
        self.feed_adopting(payload, &mut |_| None);
    }

    pub(crate) fn feed_adopting(&mut self, payload: &[u8], adopt: &mut Adopt<'_>) {
        let mut out = Outcome::default();
        self.source
            .live(self.generation, self.next, payload, adopt, &mut out);
        self.next += 1;
        self.applied.take(out);
    }

    pub(crate) fn holds(&self, keys: &[BlockKey]) -> bool {
        let keys: BTreeSet<u64> = keys.iter().map(|key| key.get()).collect();
        keys == self.applied.held
    }
}

pub(crate) fn live(
    source: &mut Source,
    generation: Generation,
    applied: &mut Applied,
    seq: u64,
    payload: &[u8],
) {
    let mut out = Outcome::default();
    source.live(generation, seq, payload, &mut |_| None, &mut out);
    applied.take(out);
}
