//! Which open reservations of one endpoint have a block in their prompt, and where.
//!
//! A hash map from key to the head of a list in an arena; both keep their memory, so a claim costs no allocation. A prompt
//! claims its outstanding blocks when it is picked, and those of its predicted hit when the next event arrives.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use lmetric_prefix::BlockKey;

/// Keys are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A map whose keys are block keys.
pub(crate) type KeyMap<V> = HashMap<BlockKey, V, BuildHasherDefault<KeyHasher>>;

/// Block `position` of prompt `track` of the reservation at `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) place: u32,
    pub(crate) track: u32,
    pub(crate) position: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    claim: Claim,
    next: u32,
}

/// Claims of one endpoint's open reservations.
#[derive(Debug)]
pub(crate) struct Claims {
    heads: KeyMap<u32>,
    nodes: Vec<Node>,
    free: u32,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            heads: KeyMap::default(),
            nodes: Vec::new(),
            free: NONE,
        }
    }
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    pub(crate) fn add(&mut self, key: BlockKey, claim: Claim) {
        let head = self.heads.entry(key).or_insert(NONE);
        let node = Node { claim, next: *head };
        if self.free == NONE {
            *head = self.nodes.len() as u32;
            self.nodes.push(node);
        } else {
            *head = self.free;
            let reused = &mut self.nodes[self.free as usize];
            self.free = reused.next;
            *reused = node;
        }
    }

    /// Takes a claim away. O(claims on `key`).
    pub(crate) fn remove(&mut self, key: BlockKey, place: u32, track: u32) {
        let hashbrown::hash_map::Entry::Occupied(mut head) = self.heads.entry(key) else {
            return;
        };
        let mut before = NONE;
        let mut at = *head.get();
        while at != NONE {
            let Node { claim, next } = self.nodes[at as usize];
            if claim.place == place && claim.track == track {
                match (before, next) {
                    (NONE, NONE) => {
                        head.remove();
                    }
                    (NONE, next) => *head.get_mut() = next,
                    (before, next) => self.nodes[before as usize].next = next,
                }
                self.nodes[at as usize].next = self.free;
                self.free = at;
                break;
            }
            before = at;
            at = next;
        }
        // a burst may have grown the arena far beyond what is usual; start small again
        if self.heads.is_empty() {
            self.nodes.clear();
            self.free = NONE;
            if self.nodes.capacity() > 1 << 16 {
                self.nodes.shrink_to(1 << 12);
                self.heads.shrink_to(1 << 12);
            }
        }
    }

    /// The claims on `key`, newest first.
    pub(crate) fn on(&self, key: BlockKey) -> impl Iterator<Item = Claim> + '_ {
        let mut at = self.heads.get(&key).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let Node { claim, next } = *self.nodes.get(at as usize)?;
            at = next;
            Some(claim)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn claims_equal_a_plain_list(steps in prop::collection::vec((any::<bool>(), 0_u64..6, 0_u32..5), 1..200)) {
            let mut claims = Claims::default();
            let mut plain: Vec<(u64, Claim)> = Vec::new();
            for (add, key, place) in steps {
                let held = plain.iter().position(|(k, c)| *k == key && c.place == place);
                match (add, held) {
                    (true, None) => {
                        let claim = Claim { place, track: 0, position: 7 };
                        claims.add(BlockKey::from_raw(key), claim);
                        plain.push((key, claim));
                    }
                    (false, _) => {
                        claims.remove(BlockKey::from_raw(key), place, 0);
                        plain.retain(|(k, c)| *k != key || c.place != place);
                    }
                    (true, Some(_)) => {}
                }
                for key in 0..6 {
                    let found: Vec<Claim> = claims.on(BlockKey::from_raw(key)).collect();
                    let expected: Vec<Claim> =
                        plain.iter().rev().filter(|(k, _)| *k == key).map(|(_, c)| *c).collect();
                    prop_assert_eq!(found, expected);
                }
                prop_assert_eq!(claims.is_empty(), plain.is_empty());
            }
        }
    }
}
