//! Physical KV blocks: reference counts, the free queue in eviction order, and which block holds which hash.
//!
//! As in vLLM v1: a cached block without users stays in the free queue until it is taken; taking it evicts its
//! hash. A request frees its blocks tail first, hashed ones to the back of the queue (least recently used are
//! taken first) and those without a hash to the front (nobody can hit them). One hash may have several
//! physical copies; each is announced and evicted on its own.
//!
//! Every operation is O(1) per block, but removing a copy walks the copies of its hash.

use crate::events::Events;
use crate::hash::{BlockHash, Map};

/// Index of a physical block.
pub(crate) type BlockId = u32;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    hash: Option<BlockHash>,
    users: u32,
    previous: u32,
    next: u32,
    next_copy: u32,
}

/// All blocks of one engine.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    blocks: Vec<Block>,
    first_free: u32,
    last_free: u32,
    free: u32,
    cached: Map<BlockHash, BlockId>,
}

impl Pool {
    /// `usable` blocks, all free.
    pub(crate) fn new(usable: u32) -> Self {
        let empty = Block {
            hash: None,
            users: 0,
            previous: NONE,
            next: NONE,
            next_copy: NONE,
        };
        let mut pool = Self {
            blocks: vec![empty; usable as usize],
            first_free: NONE,
            last_free: NONE,
            free: 0,
            cached: Map::default(),
        };
        for id in 0..usable {
            pool.push_back(id);
        }
        pool
    }

    pub(crate) fn usable(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Blocks without users, cached or not.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// The oldest copy of `hash`.
    pub(crate) fn find(&self, hash: BlockHash) -> Option<BlockId> {
        self.cached.get(&hash).copied()
    }

    pub(crate) fn is_free(&self, id: BlockId) -> bool {
        self.blocks[id as usize].users == 0
    }

    /// One more user of a cached block.
    pub(crate) fn touch(&mut self, id: BlockId) {
        if self.is_free(id) {
            self.unlink(id);
        }
        self.blocks[id as usize].users += 1;
    }

    /// Takes the block that is first in eviction order; none when all are in use.
    pub(crate) fn take(&mut self, events: &mut Events) -> Option<BlockId> {
        let id = self.first_free;
        if id == NONE {
            return None;
        }
        self.unlink(id);
        self.blocks[id as usize].users = 1;
        if let Some(hash) = self.blocks[id as usize].hash.take() {
            self.forget_copy(hash, id);
            events.removed(hash);
        }
        Some(id)
    }

    /// A block in use is full: it can be hit from now on.
    pub(crate) fn cache(&mut self, id: BlockId, hash: BlockHash) {
        debug_assert!(self.blocks[id as usize].hash.is_none(), "a block is cached once");
        self.blocks[id as usize].hash = Some(hash);
        self.blocks[id as usize].next_copy = NONE;
        if let Some(&oldest) = self.cached.get(&hash) {
            let mut last = oldest;
            while self.blocks[last as usize].next_copy != NONE {
                last = self.blocks[last as usize].next_copy;
            }
            self.blocks[last as usize].next_copy = id;
        } else {
            self.cached.insert(hash, id);
        }
    }

    /// One user less for each block of a request, given in prompt order.
    pub(crate) fn release(&mut self, blocks: &[BlockId]) {
        let mut front = Vec::new();
        for &id in blocks.iter().rev() {
            let block = &mut self.blocks[id as usize];
            block.users -= 1;
            if block.users > 0 {
                continue;
            }
            if block.hash.is_some() {
                self.push_back(id);
            } else {
                front.push(id);
            }
        }
        for &id in front.iter().rev() {
            self.push_front(id);
        }
    }

    /// Forgets every hash; only when no block is in use. The eviction order stays.
    pub(crate) fn reset(&mut self) -> bool {
        if self.free != self.usable() {
            return false;
        }
        self.cached.clear();
        for block in &mut self.blocks {
            block.hash = None;
            block.next_copy = NONE;
        }
        true
    }

    /// Hashes that can be hit.
    pub(crate) fn cached(&self) -> impl ExactSizeIterator<Item = BlockHash> {
        self.cached.keys().copied()
    }

    fn forget_copy(&mut self, hash: BlockHash, id: BlockId) {
        let next = self.blocks[id as usize].next_copy;
        self.blocks[id as usize].next_copy = NONE;
        let oldest = self.cached[&hash];
        if oldest == id {
            if next == NONE {
                self.cached.remove(&hash);
            } else {
                self.cached.insert(hash, next);
            }
            return;
        }
        let mut before = oldest;
        while self.blocks[before as usize].next_copy != id {
            before = self.blocks[before as usize].next_copy;
        }
        self.blocks[before as usize].next_copy = next;
    }

    fn push_back(&mut self, id: BlockId) {
        let last = self.last_free;
        self.blocks[id as usize].previous = last;
        self.blocks[id as usize].next = NONE;
        if last == NONE {
            self.first_free = id;
        } else {
            self.blocks[last as usize].next = id;
        }
        self.last_free = id;
        self.free += 1;
    }

    fn push_front(&mut self, id: BlockId) {
        let first = self.first_free;
        self.blocks[id as usize].previous = NONE;
        self.blocks[id as usize].next = first;
        if first == NONE {
            self.last_free = id;
        } else {
            self.blocks[first as usize].previous = id;
        }
        self.first_free = id;
        self.free += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { previous, next, .. } = self.blocks[id as usize];
        if previous == NONE {
            self.first_free = next;
        } else {
            self.blocks[previous as usize].next = next;
        }
        if next == NONE {
            self.last_free = previous;
        } else {
            self.blocks[next as usize].previous = previous;
        }
        self.free -= 1;
    }
}

#[cfg(test)]
impl Pool {
    /// Free blocks in eviction order.
    pub(crate) fn eviction_order(&self) -> Vec<(BlockId, Option<BlockHash>)> {
        let mut order = Vec::new();
        let mut id = self.first_free;
        while id != NONE {
            order.push((id, self.blocks[id as usize].hash));
            id = self.blocks[id as usize].next;
        }
        order
    }

    pub(crate) fn users(&self, id: BlockId) -> u32 {
        self.blocks[id as usize].users
    }

    /// Every copy is reachable from its hash, and nothing else is.
    pub(crate) fn check_copies(&self) {
        let mut reachable = 0;
        for (&hash, &oldest) in &self.cached {
            let mut id = oldest;
            while id != NONE {
                assert_eq!(self.blocks[id as usize].hash, Some(hash));
                reachable += 1;
                id = self.blocks[id as usize].next_copy;
            }
        }
        let hashed = self.blocks.iter().filter(|block| block.hash.is_some()).count();
        assert_eq!(reachable, hashed, "copies reachable from the map");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(pool: &Pool) -> Vec<Option<u64>> {
        pool.eviction_order()
            .iter()
            .map(|(_, hash)| hash.map(|hash| hash.0))
            .collect()
    }

    #[test]
    fn a_request_is_evicted_tail_first_and_its_unhashed_tail_before_everything() {
        let mut pool = Pool::new(4);
        let mut events = Events::default();
        let blocks: Vec<_> = (0..3).map(|_| pool.take(&mut events).unwrap()).collect();
        pool.cache(blocks[0], BlockHash(10));
        pool.cache(blocks[1], BlockHash(11));
        pool.release(&blocks);
        assert_eq!(hashes(&pool), [None, None, Some(11), Some(10)]);
        assert_eq!(pool.eviction_order()[0].0, blocks[2]);
        assert!(events.is_empty());
    }

    #[test]
    fn taking_a_cached_block_evicts_exactly_its_copy() {
        let mut pool = Pool::new(2);
        let mut events = Events::default();
        let (one, two) = (pool.take(&mut events).unwrap(), pool.take(&mut events).unwrap());
        pool.cache(one, BlockHash(5));
        pool.cache(two, BlockHash(5));
        assert_eq!(pool.find(BlockHash(5)), Some(one));
        pool.release(&[one]);
        assert_eq!(pool.take(&mut events), Some(one));
        assert_eq!(events.len(), 1);
        assert_eq!(
            pool.find(BlockHash(5)),
            Some(two),
            "the younger copy is still there"
        );
        assert_eq!(pool.take(&mut events), None);
    }

    #[test]
    fn a_hit_takes_the_block_out_of_the_eviction_order() {
        let mut pool = Pool::new(2);
        let mut events = Events::default();
        let one = pool.take(&mut events).unwrap();
        pool.cache(one, BlockHash(5));
        pool.release(&[one]);
        pool.touch(one);
        assert_eq!(hashes(&pool), [None]);
        pool.release(&[one]);
        assert_eq!(hashes(&pool), [None, Some(5)]);
    }

    #[test]
    fn a_reset_is_refused_while_a_block_is_in_use() {
        let mut pool = Pool::new(2);
        let mut events = Events::default();
        let one = pool.take(&mut events).unwrap();
        pool.cache(one, BlockHash(5));
        assert!(!pool.reset());
        pool.release(&[one]);
        assert!(pool.reset());
        assert_eq!(pool.find(BlockHash(5)), None);
    }
}
