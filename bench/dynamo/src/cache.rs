//! One endpoint's cache: least recently used first, as vLLM evicts.

use std::collections::{BTreeMap, HashMap};

/// Which blocks an engine holds, and since when they were not used.
#[derive(Default)]
pub struct Cache {
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Cache {
    /// How many blocks it holds.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Blocks of this prompt that it holds, from the beginning.
    pub fn reach(&self, hashes: &[u64]) -> usize {
        hashes
            .iter()
            .position(|hash| !self.used.contains_key(hash))
            .unwrap_or(hashes.len())
    }

    /// The block is used at this time.
    pub fn touch(&mut self, hash: u64, at: u64) {
        if let Some(before) = self.used.insert(hash, at) {
            self.order.remove(&before);
        }
        self.order.insert(at, hash);
    }

    /// Gives up what is above this many blocks.
    pub fn shrink(&mut self, blocks: usize) -> Vec<u64> {
        let mut gone = Vec::new();
        while self.used.len() > blocks
            && let Some((_, hash)) = self.order.pop_first()
        {
            self.used.remove(&hash);
            gone.push(hash);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut cache = Cache::default();
        for (at, hash) in [7, 8, 9, 7].into_iter().enumerate() {
            cache.touch(hash, at as u64);
        }
        assert_eq!(cache.reach(&[7, 8, 1, 9]), 2);
        assert_eq!(cache.shrink(1), [8, 9]);
        assert_eq!((cache.len(), cache.reach(&[7, 8])), (1, 1));
    }
}
