//! Ids of text that was seen before.
//!
//! Text between added tokens tokenizes on its own, and a conversation's next turn repeats all but
//! its newest messages: with the pieces cached, a turn pays only for its new text. The shortest are
//! cached as well: even a newline takes the tokenizer three times as long as the cache, and templates
//! put one after every message.

use std::sync::Arc;

use hashbrown::HashTable;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::encode::{Encode, Piece, TokenizerError};

const SHARDS: usize = 16;
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
        let shard = || {
            Mutex::new(Shard {
                bound: bytes / SHARDS,
                ..Shard::default()
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
        }
    }

    /// Appends what `encoder` makes of `text`; pieces that were seen before come from the cache. Gives up, with false, where more
    /// than `most` bytes were not; what was encoded until then is cached all the same.
    ///
    /// The caller makes sure that the encoder's pieces are independent.
    pub(crate) fn encode(
        &self,
        encoder: &dyn Encode,
        text: &str,
        most: usize,
        ids: &mut Vec<u32>,
    ) -> Result<bool, TokenizerError> {
        let mut left = Ok(Some(most));
        encoder.pieces(text, &mut |piece| {
            let Ok(Some(most)) = left else { return };
            match piece {
                Piece::Added(id) => ids.push(id),
                Piece::Text(text) => left = self.encode_piece(encoder, text, most, ids),
            }
        });
        Ok(left?.is_some())
    }

    /// What is left of `most`; `None` where the piece is new and longer than that.
    fn encode_piece(
        &self,
        encoder: &dyn Encode,
        text: &str,
        most: usize,
        ids: &mut Vec<u32>,
    ) -> Result<Option<usize>, TokenizerError> {
        let hash = xxh3_64(text.as_bytes());
        // the table inside a shard uses the lowest and the highest bits
        let shard = &self.shards[(hash >> 32) as usize % SHARDS];
        if let Some(entry) = shard.lock().find(hash, text) {
            ids.extend_from_slice(&entry.ids);
            return Ok(Some(most));
        }
        let Some(left) = most.checked_sub(text.len()) else {
            return Ok(None);
        };
        let start = ids.len();
        encoder.encode(text, ids)?;
        let entry = Entry {
            hash,
            text: text.into(),
            ids: ids[start..].into(),
        };
        shard.lock().insert(entry);
        Ok(Some(left))
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
        slots.push(Slot {
            entry: Arc::new(entry),
            hit: false,
        });
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// One id per byte; `#` is an added token. Counts the bytes it is asked to encode.
    #[derive(Default)]
    struct Counting {
        encoded: AtomicUsize,
    }

    impl Encode for Counting {
        fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
            self.encoded.fetch_add(text.len(), Ordering::Relaxed);
            ids.extend(text.bytes().map(u32::from));
            Ok(())
        }

        fn pieces_are_independent(&self) -> bool {
            true
        }

        fn pieces<'text>(&self, text: &'text str, each: &mut dyn FnMut(Piece<'text>)) {
            for (at, piece) in text.split('#').enumerate() {
                if at > 0 {
                    each(Piece::Added(u32::from(b'#')));
                }
                if !piece.is_empty() {
                    each(Piece::Text(piece));
                }
            }
        }

        fn affixes(&self) -> (&[u32], &[u32]) {
            (&[], &[])
        }

        fn vocabulary(&self) -> u32 {
            256
        }

        fn decode(&self, _ids: &[u32]) -> Result<String, TokenizerError> {
            Ok(String::new())
        }
    }

    fn encode(cache: &SegmentCache, encoder: &Counting, text: &str) -> (Vec<u32>, usize) {
        let before = encoder.encoded.load(Ordering::Relaxed);
        let mut ids = Vec::new();
        assert!(cache.encode(encoder, text, usize::MAX, &mut ids).unwrap());
        (ids, encoder.encoded.load(Ordering::Relaxed) - before)
    }

    #[test]
    fn the_next_turn_encodes_only_its_new_text() {
        let cache = SegmentCache::new(1 << 20);
        let encoder = Counting::default();
        let mut text = String::new();
        for turn in 0..40 {
            let message = format!("#message number {turn}: {}", "some words, ".repeat(30));
            text.push_str(&message);
            let (ids, encoded) = encode(&cache, &encoder, &text);
            assert_eq!(encoded, message.len() - 1);
            assert_eq!(ids, text.bytes().map(u32::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn more_new_text_than_allowed_is_given_up_and_only_the_rest_is_left_for_the_next_one() {
        let cache = SegmentCache::new(1 << 20);
        let encoder = Counting::default();
        let text = "#the first#the second one#the third";
        let within = |most| {
            let mut ids = Vec::new();
            let before = encoder.encoded.load(Ordering::Relaxed);
            let done = cache.encode(&encoder, text, most, &mut ids).unwrap();
            let encoded = encoder.encoded.load(Ordering::Relaxed) - before;
            (done.then_some(ids.len()), encoded)
        };
        assert_eq!(within(8), (None, 0));
        assert_eq!(
            within(22),
            (None, 9),
            "the second has fourteen bytes, and thirteen are left"
        );
        assert_eq!(within(22), (None, 14));
        assert_eq!(within(9), (Some(text.len()), 9));
        assert_eq!(within(0), (Some(text.len()), 0));
    }

    #[test]
    fn the_bound_holds_and_what_is_used_stays() {
        let bytes = 256 << 10;
        let cache = SegmentCache::new(bytes);
        let encoder = Counting::default();
        let shared = "the system prompt that every request begins with ".repeat(4);
        encode(&cache, &encoder, &shared);
        let mut misses = 0;
        for at in 0..5_000 {
            misses += usize::from(encode(&cache, &encoder, &shared).1 > 0);
            encode(
                &cache,
                &encoder,
                &format!("a prompt that never comes again, number {at} {}", "x".repeat(200)),
            );
            assert!(cache.bytes() <= bytes);
        }
        assert_eq!(misses, 0);
    }

    #[test]
    fn a_text_too_long_for_the_cache_pushes_nothing_out() {
        let cache = SegmentCache::new(256 << 10);
        let encoder = Counting::default();
        let kept = "a text of ordinary length that is kept in the cache";
        encode(&cache, &encoder, kept);
        let held = cache.bytes();
        encode(&cache, &encoder, &"long ".repeat(100_000));
        assert_eq!(cache.bytes(), held);
        assert_eq!(encode(&cache, &encoder, kept).1, 0);
    }
}
