//! A table from numbers (hashes, keys) to nodes.
//!
//! Buckets of 128 bytes, two lines of a processor's cache that lie side by side, hold eleven numbers and their nodes,
//! and how many wanted to be here and went on to the next bucket: a search ends where nobody went on, and a removal
//! leaves no trace. A table is 15⁄16 full at most and grows by less than a third, in 16 shards that grow one at a time,
//! so that it costs about fourteen bytes a node at any size. Buckets follow the order of the numbers as they are mixed:
//! a shard that grows is read and written from front to back.

use std::hash::{BuildHasher, RandomState};

use super::nodes::NodeId;

/// Bits of a mixed number that choose the shard.
const SHARD_BITS: u32 = 4;
const SHARDS: usize = 1 << SHARD_BITS;
/// Nodes in a bucket.
const LANES: usize = 11;

#[derive(Clone, Debug)]
#[repr(align(128))]
struct Bucket {
    /// Mixed.
    numbers: [u64; LANES],
    nodes: [[u8; 3]; LANES],
    count: u8,
    /// Nodes that found this bucket full and are in a later one.
    passed: u32,
}

const _: () = assert!(size_of::<Bucket>() == 128);

const EMPTY: Bucket = Bucket {
    numbers: [0; LANES],
    nodes: [[0; 3]; LANES],
    count: 0,
    passed: 0,
};

impl Bucket {
    fn node(&self, lane: usize) -> NodeId {
        NodeId::from_bytes(self.nodes[lane])
    }

    fn find(&self, mixed: u64) -> Option<usize> {
        // all are compared, without a branch for each, and most searches find nothing; behind the last is what was there
        let equal = self.numbers.map(|number| u64::from(number == mixed));
        if equal.iter().sum::<u64>() == 0 {
            return None;
        }
        let numbers = &self.numbers[..usize::from(self.count)];
        numbers.iter().position(|number| *number == mixed)
    }

    fn push(&mut self, mixed: u64, node: [u8; 3]) -> bool {
        let lane = usize::from(self.count);
        let (Some(number), Some(place)) = (self.numbers.get_mut(lane), self.nodes.get_mut(lane)) else {
            return false;
        };
        (*number, *place) = (mixed, node);
        self.count += 1;
        true
    }

    fn take(&mut self, lane: usize) -> NodeId {
        let node = self.node(lane);
        self.count -= 1;
        let last = usize::from(self.count);
        self.numbers[lane] = self.numbers[last];
        self.nodes[lane] = self.nodes[last];
        node
    }
}

#[derive(Debug, Default)]
struct Shard {
    buckets: Vec<Bucket>,
    used: usize,
}

impl Shard {
    fn home(&self, mixed: u64) -> usize {
        let within = mixed << SHARD_BITS >> 32;
        ((within * self.buckets.len() as u64) >> 32) as usize
    }

    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() {
            0
        } else {
            bucket + 1
        }
    }

    fn find(&self, mixed: u64) -> Option<(usize, usize)> {
        if self.used == 0 {
            return None;
        }
        let mut at = self.home(mixed);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            if let Some(lane) = bucket.find(mixed) {
                return Some((at, lane));
            }
            if bucket.passed == 0 {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    fn is_full(&self) -> bool {
        (self.used + 1) * 16 > self.buckets.len() * LANES * 15
    }

    /// There is room.
    #[inline]
    fn place(&mut self, mixed: u64, node: [u8; 3]) {
        let mut at = self.home(mixed);
        while !self.buckets[at].push(mixed, node) {
            self.buckets[at].passed += 1;
            at = self.after(at);
        }
        self.used += 1;
    }

    /// Shards of unlike numbers grow by unlike amounts, so that they do not all grow at once.
    fn grow(&mut self, number: usize) {
        let buckets = self.buckets.len();
        let more = (buckets / (3 + number % 4)).max(1);
        let old = std::mem::replace(&mut self.buckets, vec![EMPTY; buckets + more]);
        self.used = 0;
        for bucket in &old {
            let count = usize::from(bucket.count);
            for (&number, &node) in bucket.numbers[..count].iter().zip(&bucket.nodes[..count]) {
                self.place(number, node);
            }
        }
    }

    fn take(&mut self, mixed: u64, at: usize, lane: usize) -> NodeId {
        let mut before = self.home(mixed);
        while before != at {
            self.buckets[before].passed -= 1;
            before = self.after(before);
        }
        self.used -= 1;
        self.buckets[at].take(lane)
    }
}

/// Spreads numbers over 64 bits, no two to the same: by one drawn for this table, for an engine's tenants may choose
/// its hashes.
#[derive(Clone, Copy, Debug)]
struct Mix(u64);

impl Mix {
    fn of(self, number: u64) -> u64 {
        let folded = (number ^ self.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (folded ^ folded >> 32).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }
}

/// Nodes by a number each has alone.
#[derive(Debug)]
pub(super) struct Ids {
    shards: [Shard; SHARDS],
    len: usize,
    mix: Mix,
}

impl Default for Ids {
    fn default() -> Self {
        Self {
            shards: Default::default(),
            len: 0,
            mix: Mix(RandomState::new().hash_one(0)),
        }
    }
}

fn shard(mixed: u64) -> usize {
    (mixed >> (64 - SHARD_BITS)) as usize
}

impl Ids {
    /// Nodes in the table.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Reads where each of `numbers` is looked for, so that looking for them one by one does not wait for memory each
    /// time.
    pub(super) fn fetch(&self, numbers: &[u64]) {
        let mut read = 0;
        let places = || {
            numbers.iter().filter_map(|number| {
                let mixed = self.mix.of(*number);
                let shard = &self.shards[shard(mixed)];
                let home = shard.home(mixed);
                Some((shard, home, shard.buckets.get(home)?))
            })
        };
        for (_, _, bucket) in places() {
            read ^= bucket.numbers[0] ^ u64::from(bucket.passed);
        }
        // once more, for those that may have gone on
        for (shard, home, bucket) in places() {
            let on = home + usize::from(bucket.passed > 0);
            if let Some(bucket) = shard.buckets.get(on) {
                read ^= bucket.numbers[0] ^ u64::from(bucket.passed);
            }
        }
        std::hint::black_box(read);
    }

    /// The node of `number`. O(1).
    pub(super) fn find(&self, number: u64) -> Option<NodeId> {
        let mixed = self.mix.of(number);
        let shard = &self.shards[shard(mixed)];
        let (at, lane) = shard.find(mixed)?;
        Some(shard.buckets[at].node(lane))
    }

    /// Gives `number`, which has no node, this one. Amortised O(1).
    pub(super) fn insert(&mut self, number: u64, node: NodeId) {
        let mixed = self.mix.of(number);
        let at = shard(mixed);
        let shard = &mut self.shards[at];
        if shard.is_full() {
            shard.grow(at);
        }
        shard.place(mixed, node.to_bytes());
        self.len += 1;
    }

    /// Takes the node of `number` out. O(1).
    pub(super) fn remove(&mut self, number: u64) -> Option<NodeId> {
        let mixed = self.mix.of(number);
        let shard = &mut self.shards[shard(mixed)];
        let (at, lane) = shard.find(mixed)?;
        self.len -= 1;
        Some(shard.take(mixed, at, lane))
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let buckets: usize = self.shards.iter().map(|shard| shard.buckets.capacity()).sum();
        buckets * size_of::<Bucket>()
    }
}
