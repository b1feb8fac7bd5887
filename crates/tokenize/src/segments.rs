//! Ids of text that was seen before.
//!
//! Text between added tokens tokenizes on its own, and a conversation's next turn repeats all but
//! its newest messages: with the pieces cached, a turn pays only for its new text.

use std::sync::Arc;

use hashbrown::HashTable;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::encode::{Encode, Piece, TokenizerError};

const SHARDS: usize = 16;
/// Below this many bytes a piece is tokenized as fast as it is looked up.
const SHORTEST: usize = 48;
/// What an entry costs beside its text and ids: two `Arc` headers, the slot and its table cell.
const ENTRY_OVERHEAD: usize = 128;

/// A bounded cache of pieces and their ids, safe to share between threads.
///
/// Entries are compared by their whole text, so a hit is exactly what encoding would give. At the
/// bound the clock algorithm evicts: entries that were hit since the hand last passed stay.
pub(crate) struct SegmentCache {
    shards: Vec<Mutex<Shard>>,
}

struct Entry {
    hash: u64,
    text: Box<str>,
    ids: Box<[u32]>,
}

struct Slot {
    entry: Arc<Entry>,
    hit: bool,
}

#[derive(Default)]
struct Shard {
    /// Slot numbers by hash of the text.
    table: HashTable<usize>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
    bound: usize,
}

impl SegmentCache {
    /// A cache of at most `bytes` (texts, ids and overhead together); 0 keeps nothing.
    pub(crate) fn new(bytes: usize) -> Self {
        let shard = || Mutex::new(Shard { bound: bytes / SHARDS, ..Shard::default() });
        Self { shards: (0..SHARDS).map(|_| shard()).collect() }
    }

    /// Appends what `encoder` makes of `text`; pieces that were seen before come from the cache.
    ///
    /// The caller makes sure that the encoder's pieces are independent.
    pub(crate) fn encode(
        &self,
        encoder: &dyn Encode,
        text: &str,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut failure = None;
        encoder.pieces(text, &mut |piece| {
            let done = match piece {
                Piece::Added(id) => {
                    ids.push(id);
                    Ok(())
                }
                Piece::Text(text) if text.len() < SHORTEST => encoder.encode(text, ids),
                Piece::Text(text) => self.encode_piece(encoder, text, ids),
            };
            if let Err(error) = done {
                failure.get_or_insert(error);
            }
        });
        failure.map_or(Ok(()), Err)
    }

    fn encode_piece(
        &self,
        encoder: &dyn Encode,
        text: &str,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let hash = xxh3_64(text.as_bytes());
        // the table inside a shard uses the lowest and the highest bits
        let shard = &self.shards[(hash >> 32) as usize % SHARDS];
        if let Some(entry) = shard.lock().find(hash, text) {
            ids.extend_from_slice(&entry.ids);
            return Ok(());
        }
        let start = ids.len();
        encoder.encode(text, ids)?;
        let entry = Entry { hash, text: text.into(), ids: ids[start..].into() };
        shard.lock().insert(entry);
        Ok(())
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }
}

impl Entry {
    fn cost(&self) -> usize {
        self.text.len() + size_of_val::<[u32]>(&self.ids) + ENTRY_OVERHEAD
    }
}

impl Shard {
    fn find(&mut self, hash: u64, text: &str) -> Option<Arc<Entry>> {
        let Self { table, slots, .. } = self;
        let same = |&slot: &usize| slots[slot].entry.hash == hash && *slots[slot].entry.text == *text;
        let found = table.find(hash, same)?;
        let slot = &mut slots[*found];
        slot.hit = true;
        Some(slot.entry.clone())
    }

    fn insert(&mut self, entry: Entry) {
        let cost = entry.cost();
        // one long prompt must not push everything else out
        if cost > self.bound / 4 || self.find(entry.hash, &entry.text).is_some() {
            return;
        }
        while self.bytes + cost > self.bound {
            self.evict_one();
        }
        self.bytes += cost;
        let Self { table, slots, .. } = self;
        table.insert_unique(entry.hash, slots.len(), |&slot| slots[slot].entry.hash);
        slots.push(Slot { entry: Arc::new(entry), hit: false });
    }

    fn evict_one(&mut self) {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            if !std::mem::take(&mut self.slots[self.hand].hit) {
                break;
            }
            self.hand += 1;
        }
        let at = self.hand;
        let last = self.slots.len() - 1;
        let Self { table, slots, .. } = self;
        let gone = slots[at].entry.hash;
        if let Ok(cell) = table.find_entry(gone, |&slot| slot == at) {
            cell.remove();
        }
        if at != last
            && let Some(moved) = table.find_mut(slots[last].entry.hash, |&slot| slot == last)
        {
            *moved = at;
        }
        let slot = slots.swap_remove(at);
        self.bytes -= slot.entry.cost();
    }
}
