//! An engine's prefix cache: so many blocks; the least recently used one makes room, and never before those that follow it.

use std::collections::{HashMap, VecDeque};

/// Blocks of a prompt, as a rule.
const LONGEST: usize = 4_096;

/// Blocks of one engine, by the engine's hash.
#[derive(Debug)]
pub struct Cache {
    /// When each was used last.
    used: HashMap<u64, u64>,
    /// Uses in order; one that is not the block's last means nothing.
    order: VecDeque<(u64, u64)>,
    clock: u64,
    capacity: usize,
}

impl Cache {
    /// Empty, with room for so many blocks.
    pub fn new(capacity: usize) -> Self {
        Self {
            used: HashMap::new(),
            order: VecDeque::new(),
            clock: 0,
            capacity,
        }
    }

    /// Takes all memory that it will ever need, so that it does not grow while something else is watched.
    #[must_use]
    pub fn reserved(mut self) -> Self {
        // a table that is half full at most never grows, however its blocks come and go
        self.used.reserve(2 * self.capacity);
        self.order.reserve(2 * self.capacity.max(1_024) + LONGEST);
        self
    }

    /// How many of these blocks, from the first on, are here.
    pub fn held(&self, hashes: &[u64]) -> usize {
        let missing = hashes.iter().position(|hash| !self.used.contains_key(hash));
        missing.unwrap_or(hashes.len())
    }

    /// Uses the blocks of one prompt, which are here from now on. Returns those that made room.
    pub fn take(&mut self, hashes: &[u64]) -> Vec<u64> {
        for hash in hashes.iter().rev() {
            self.clock += 1;
            self.used.insert(*hash, self.clock);
            self.order.push_back((*hash, self.clock));
        }
        let mut gone = Vec::new();
        while self.used.len() > self.capacity
            && let Some((hash, at)) = self.order.pop_front()
        {
            if self.used.get(&hash) == Some(&at) {
                self.used.remove(&hash);
                gone.push(hash);
            }
        }
        if self.order.len() > 2 * self.used.len().max(1_024) {
            let used = &self.used;
            self.order.retain(|(hash, at)| used.get(hash) == Some(at));
        }
        gone
    }

    /// Blocks that are here.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// None is.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Blocks that it has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// It has no more room than it has blocks.
    pub fn is_full_now(&mut self) {
        self.capacity = self.used.len().max(1);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.used.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_least_recently_used_prompt_makes_room() {
        let mut cache = Cache::new(4);
        assert!(cache.take(&[1, 2]).is_empty());
        assert!(cache.take(&[1, 3, 4]).is_empty());
        assert_eq!(cache.take(&[1, 3, 5]), [2]);
        assert_eq!(cache.take(&[6]), [4]);
        assert_eq!(cache.held(&[1, 3, 5]), 3);
        assert_eq!(cache.held(&[1, 2]), 1);
        assert_eq!(cache.len(), 4);
    }

    #[test]
    fn a_prompt_that_is_used_again_and_again_costs_no_memory() {
        let mut cache = Cache::new(10);
        for _ in 0..100_000 {
            assert!(cache.take(&[1, 2, 3]).is_empty());
        }
        assert!(cache.order.len() <= 2 * 1_024);
    }
}
