//! Blocks kept outside the GPU: counted per medium and group, not indexed.

use hashbrown::{HashMap, hash_map::Entry};

use super::{blocks::EngineHash, space::Medium};

/// Copies of offloaded blocks.
#[derive(Debug, Default)]
pub(super) struct Tiers(HashMap<(Medium, EngineHash), u16>);

impl Tiers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// One more copy; false when that would be more than `most` different blocks.
    pub(super) fn store(&mut self, medium: Medium, hash: EngineHash, most: usize) -> bool {
        let full = self.0.len() >= most;
        match self.0.entry((medium, hash)) {
            Entry::Occupied(mut copies) => *copies.get_mut() = copies.get().saturating_add(1),
            Entry::Vacant(_) if full => return false,
            Entry::Vacant(vacant) => {
                vacant.insert(1);
            }
        }
        true
    }

    /// One copy less; false when there is none.
    pub(super) fn remove(&mut self, medium: Medium, hash: EngineHash) -> bool {
        match self.0.entry((medium, hash)) {
            Entry::Occupied(mut copies) => {
                if *copies.get() > 1 {
                    *copies.get_mut() -= 1;
                } else {
                    copies.remove();
                }
                true
            }
            Entry::Vacant(_) => false,
        }
    }

    pub(super) fn clear(&mut self) {
        self.0 = HashMap::new();
    }
}
