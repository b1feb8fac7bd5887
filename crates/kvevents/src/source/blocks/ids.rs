//! A table from hashes to nodes that keeps only the nodes: whoever asks compares.
//!
//! Buckets of 64 bytes hold fifteen nodes of three bytes, for each of them eight bits of its hash code, and how many
//! nodes wanted to be here and went on to the next bucket: a search ends where nobody went on, and a removal leaves
//! no trace. A table is 15⁄16 full at most and grows by less than a third, in 16 shards that grow one at a time, so
//! that it costs about five bytes a node at any size.

use super::nodes::NodeId;

/// Bits of a hash code that choose the shard.
const SHARD_BITS: u32 = 4;
const SHARDS: usize = 1 << SHARD_BITS;
/// Nodes in a bucket.
const LANES: usize = 15;
/// The byte of [`Bucket::tags`] that holds the number of nodes.
const COUNT: usize = LANES;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket {
    /// Eight bits of each node's hash code, then the number of nodes.
    tags: [u8; LANES + 1],
    nodes: [[u8; 3]; LANES],
    /// Nodes that found this bucket full and are in a later one.
    passed: [u8; 3],
}

const EMPTY: Bucket = Bucket {
    tags: [0; LANES + 1],
    nodes: [[0; 3]; LANES],
    passed: [0; 3],
};

impl Bucket {
    fn count(&self) -> usize {
        usize::from(self.tags[COUNT])
    }

    fn node(&self, lane: usize) -> NodeId {
        NodeId::from_bytes(self.nodes[lane])
    }

    fn passed(&self) -> u32 {
        let [a, b, c] = self.passed;
        u32::from_le_bytes([a, b, c, 0])
    }

    fn set_passed(&mut self, passed: u32) {
        let [a, b, c, _] = passed.to_le_bytes();
        self.passed = [a, b, c];
    }

    /// Lane of the node with this tag for which `is` holds.
    fn find(&self, tag: u8, is: &impl Fn(NodeId) -> bool) -> Option<usize> {
        let mut tags = [0; 8];
        for half in 0..2 {
            tags.copy_from_slice(&self.tags[8 * half..8 * half + 8]);
            // zero where the tag is; a borrow may mark a lane above such a one falsely, and `is` tells
            let other = u64::from_le_bytes(tags) ^ (u64::from(tag) * ONES);
            let mut marks = other.wrapping_sub(ONES) & !other & HIGHS;
            while marks != 0 {
                let lane = 8 * half + marks.trailing_zeros() as usize / 8;
                if lane < self.count() && is(self.node(lane)) {
                    return Some(lane);
                }
                marks &= marks - 1;
            }
        }
        None
    }

    fn push(&mut self, tag: u8, node: NodeId) -> bool {
        let lane = self.count();
        if lane == LANES {
            return false;
        }
        self.tags[lane] = tag;
        self.nodes[lane] = node.to_bytes();
        self.tags[COUNT] += 1;
        true
    }

    fn take(&mut self, lane: usize) -> NodeId {
        let node = self.node(lane);
        let last = self.count() - 1;
        self.tags[lane] = self.tags[last];
        self.nodes[lane] = self.nodes[last];
        self.tags[COUNT] -= 1;
        node
    }
}

#[derive(Debug, Default)]
struct Shard {
    buckets: Vec<Bucket>,
    used: usize,
}

/// The bits of a hash code that a bucket keeps.
fn tag(code: u64) -> u8 {
    code as u8
}

impl Shard {
    fn home(&self, code: u64) -> usize {
        let within = code << SHARD_BITS >> 32;
        ((within * self.buckets.len() as u64) >> 32) as usize
    }

    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() {
            0
        } else {
            bucket + 1
        }
    }

    fn find(&self, code: u64, is: &impl Fn(NodeId) -> bool) -> Option<(usize, usize)> {
        if self.used == 0 {
            return None;
        }
        let mut at = self.home(code);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            if let Some(lane) = bucket.find(tag(code), is) {
                return Some((at, lane));
            }
            if bucket.passed() == 0 {
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
    fn place(&mut self, code: u64, node: NodeId) {
        let mut at = self.home(code);
        while !self.buckets[at].push(tag(code), node) {
            let bucket = &mut self.buckets[at];
            bucket.set_passed(bucket.passed() + 1);
            at = self.after(at);
        }
        self.used += 1;
    }

    /// Shards of unlike numbers grow by unlike amounts, so that they do not all grow at once.
    fn grow(&mut self, number: usize, code_of: impl Fn(NodeId) -> u64) {
        let buckets = self.buckets.len();
        let more = (buckets / (3 + number % 4)).max(1);
        let old = std::mem::replace(&mut self.buckets, vec![EMPTY; buckets + more]);
        self.used = 0;
        for bucket in &old {
            for lane in 0..bucket.count() {
                let node = bucket.node(lane);
                self.place(code_of(node), node);
            }
        }
    }

    fn take(&mut self, code: u64, at: usize, lane: usize) -> NodeId {
        let mut before = self.home(code);
        while before != at {
            let bucket = &mut self.buckets[before];
            bucket.set_passed(bucket.passed() - 1);
            before = self.after(before);
        }
        self.used -= 1;
        self.buckets[at].take(lane)
    }
}

/// Nodes by a hash code. Codes must be spread over all 64 bits.
#[derive(Debug)]
pub(super) struct Ids {
    shards: Vec<Shard>,
    len: usize,
}

impl Default for Ids {
    fn default() -> Self {
        Self {
            shards: std::iter::repeat_with(Shard::default).take(SHARDS).collect(),
            len: 0,
        }
    }
}

fn shard(code: u64) -> usize {
    (code >> (64 - SHARD_BITS)) as usize
}

impl Ids {
    /// Nodes in the table.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The node of this code for which `is` holds. O(1).
    pub(super) fn find(&self, code: u64, is: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let shard = &self.shards[shard(code)];
        let (at, lane) = shard.find(code, &is)?;
        Some(shard.buckets[at].node(lane))
    }

    /// Adds a node that is not there; `code_of` gives the codes of those that are. Amortised O(1).
    pub(super) fn insert(&mut self, code: u64, node: NodeId, code_of: impl Fn(NodeId) -> u64) {
        let number = shard(code);
        let shard = &mut self.shards[number];
        if shard.is_full() {
            shard.grow(number, code_of);
        }
        shard.place(code, node);
        self.len += 1;
    }

    /// Takes out the node of this code for which `is` holds. O(1).
    pub(super) fn remove(&mut self, code: u64, is: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let shard = &mut self.shards[shard(code)];
        let (at, lane) = shard.find(code, &is)?;
        self.len -= 1;
        Some(shard.take(code, at, lane))
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let buckets: usize = self.shards.iter().map(|shard| shard.buckets.capacity()).sum();
        buckets * size_of::<Bucket>() + self.shards.capacity() * size_of::<Shard>()
    }
}

const _: () = assert!(size_of::<Bucket>() == 64);
