//! Engine block hashes: opaque to everyone else, chained, over the full 64 bits.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What the engine calls a block and everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u64);

impl BlockHash {
    /// Where a chain starts. Requests share blocks only if their roots are equal: adapter and cache salt
    /// belong in here.
    pub fn root(seed: u64, adapter: Option<&str>, salt: Option<&str>) -> Self {
        let mut hash = xxh3_64_with_seed(b"root", seed);
        for (tag, part) in [(1, adapter), (2, salt)] {
            if let Some(part) = part {
                hash = xxh3_64_with_seed(part.as_bytes(), hash ^ tag);
            }
        }
        Self(hash)
    }

    /// The block of `tokens` after `self`.
    #[must_use]
    pub fn child(self, tokens: &[u32]) -> Self {
        let mut bytes = [0_u8; 4 * 64];
        let mut hash = self.0;
        for part in tokens.chunks(64) {
            for (slot, token) in bytes.chunks_exact_mut(4).zip(part) {
                slot.copy_from_slice(&token.to_le_bytes());
            }
            hash = xxh3_64_with_seed(&bytes[..part.len() * 4], hash);
        }
        Self(hash)
    }

    /// A block after `self` whose tokens are unknown but told apart by `mark`.
    #[must_use]
    pub fn marked_child(self, mark: u64) -> Self {
        Self(xxh3_64_with_seed(&mark.to_le_bytes(), self.0))
    }
}

/// A map hasher for keys that are hashes already: one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(value ^ self.0) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<Mixed>>;

/// A well mixed 64-bit function of two words (SplitMix64's finaliser).
pub(crate) fn mix(seed: u64, index: u64) -> u64 {
    let mut value = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_differ_by_adapter_and_salt_and_by_which_is_which() {
        let roots = [
            BlockHash::root(1, None, None),
            BlockHash::root(2, None, None),
            BlockHash::root(1, Some("a"), None),
            BlockHash::root(1, None, Some("a")),
            BlockHash::root(1, Some("a"), Some("a")),
        ];
        for (i, one) in roots.iter().enumerate() {
            for other in &roots[i + 1..] {
                assert_ne!(one, other);
            }
        }
    }

    #[test]
    fn a_long_block_depends_on_all_its_tokens() {
        let root = BlockHash::root(0, None, None);
        let tokens: Vec<u32> = (0..128).collect();
        let mut other = tokens.clone();
        other[127] += 1;
        assert_ne!(root.child(&tokens), root.child(&other));
        other = tokens.clone();
        other[0] += 1;
        assert_ne!(root.child(&tokens), root.child(&other));
    }

    #[test]
    fn hashes_use_the_upper_half_of_the_range() {
        let root = BlockHash::root(7, None, None);
        let high = (0..100_u32)
            .filter(|token| root.child(&[*token]).0 > u64::MAX / 2)
            .count();
        assert!((30..70).contains(&high), "{high} of 100 above 2^63");
    }
}
