//! Block keys: `content = xxh3_64(tokens)`, `key_i = xxh3_64(key_{i-1}, content_i)`, and a root that
//! carries everything else on which equality of KV entries depends.

use std::num::NonZeroU32;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A token id as the engine's tokenizer numbers it.
pub type TokenId = u32;

/// Tokens per block; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockSize(NonZeroU32);

impl BlockSize {
    /// `None` for zero.
    pub fn new(tokens: u32) -> Option<Self> {
        NonZeroU32::new(tokens).map(Self)
    }

    /// Tokens per block.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

/// Hash of a block's tokens alone, without what came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(u64);

impl ContentHash {
    /// `xxh3_64` over the ids as little-endian `u32`.
    pub fn of(tokens: &[TokenId]) -> Self {
        // the sizes that engines have; a length that is known needs no loop
        if let Ok(block) = <&[TokenId; 16]>::try_from(tokens) {
            return Self(xxh3_64(bytes(block).as_flattened()));
        }
        if let Ok(block) = <&[TokenId; 32]>::try_from(tokens) {
            return Self(xxh3_64(bytes(block).as_flattened()));
        }
        if tokens.len() <= PART {
            let mut part = [0; PART];
            part[..tokens.len()].copy_from_slice(tokens);
            return Self(xxh3_64(bytes(&part)[..tokens.len()].as_flattened()));
        }
        let mut hasher = Xxh3::new();
        let (parts, rest) = tokens.as_chunks::<PART>();
        for part in parts {
            hasher.update(bytes(part).as_flattened());
        }
        for token in rest {
            hasher.update(&token.to_le_bytes());
        }
        Self(hasher.digest())
    }

    /// Folds something that is no token (a multimodal item's identifier and offset) into the hash.
    #[must_use]
    pub fn mixed_with(self, extra: &[u8]) -> Self {
        let mut hasher = Xxh3::with_seed(self.0);
        hasher.update(extra);
        Self(hasher.digest())
    }

    /// Folds a multimodal item into the hash of a block that it touches: its identifier, and where it
    /// begins relative to the block (vLLM's extra key of a block is exactly this pair). Events and requests
    /// must fold the same items in the same order.
    #[must_use]
    pub fn with_item(self, identifier: &str, offset: i64) -> Self {
        self.mixed_with(&offset.to_le_bytes())
            .mixed_with(identifier.as_bytes())
    }

    /// The hash as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Tokens that are hashed at once.
const PART: usize = 64;

fn bytes<const N: usize>(tokens: &[TokenId; N]) -> [[u8; 4]; N] {
    tokens.map(u32::to_le_bytes)
}

/// Chained hash of a block and everything before it; also the root before the first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey(u64);

impl BlockKey {
    /// The key of the block with this content that follows `self`.
    #[must_use]
    pub fn child(self, content: ContentHash) -> Self {
        let mut pair = [0_u8; 16];
        pair[..8].copy_from_slice(&self.0.to_le_bytes());
        pair[8..].copy_from_slice(&content.0.to_le_bytes());
        Self(xxh3_64(&pair))
    }

    /// The key as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// A key from its number, as printed by [`BlockKey::get`].
    pub fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

/// Drawn once per process, so that nobody outside can construct colliding prompts.
#[derive(Clone, Copy, Debug)]
pub struct KeySeed(u64);

/// Everything but tokens on which equality of KV entries depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeySpace<'a> {
    /// Tokenizer group: engines of one group share model and tokenizer.
    pub group: &'a str,
    /// LoRA adapter, by the name that requests use.
    pub lora: Option<&'a str>,
    /// `cache_salt` of the request.
    pub salt: Option<&'a str>,
    /// Tokens per block.
    pub block_size: BlockSize,
}

impl KeySeed {
    /// A seed; draw it at random once per process.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The key that stands before the first block of every prompt in `space`.
    pub fn root(self, space: &KeySpace<'_>) -> BlockKey {
        let KeySpace {
            group,
            lora,
            salt,
            block_size,
        } = space;
        let mut hasher = Xxh3::with_seed(self.0);
        for part in [Some(*group), *lora, *salt] {
            match part {
                // the length before the text keeps ("ab", "c") and ("a", "bc") apart
                Some(text) => {
                    hasher.update(&(text.len() as u64 + 1).to_le_bytes());
                    hasher.update(text.as_bytes());
                }
                None => hasher.update(&0_u64.to_le_bytes()),
            }
        }
        hasher.update(&block_size.get().to_le_bytes());
        BlockKey(hasher.digest())
    }
}

/// The full blocks of one prompt in one key space. The tail that fills no block is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Tokens per block.
    pub block_size: BlockSize,
    /// The key before the first block.
    pub root: BlockKey,
    /// Content hash of each full block.
    pub contents: Vec<ContentHash>,
    /// Key of each full block; as long as `contents`.
    pub keys: Vec<BlockKey>,
}

impl Chain {
    /// Hashes the full blocks of `tokens`. O(tokens).
    pub fn new(root: BlockKey, block_size: BlockSize, tokens: &[TokenId]) -> Self {
        let blocks = tokens.chunks_exact(block_size.get() as usize);
        let mut contents = Vec::with_capacity(blocks.len());
        let mut keys = Vec::with_capacity(blocks.len());
        let mut parent = root;
        for block in blocks {
            let content = ContentHash::of(block);
            parent = parent.child(content);
            contents.push(content);
            keys.push(parent);
        }
        Self {
            block_size,
            root,
            contents,
            keys,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn content_is_the_hash_of_the_ids_as_little_endian_bytes(tokens in prop::collection::vec(any::<u32>(), 0..300)) {
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            prop_assert_eq!(ContentHash::of(&tokens).get(), xxh3_64(&bytes));
        }

        #[test]
        fn prompts_share_keys_exactly_as_long_as_they_share_blocks(
            tokens in prop::collection::vec(0_u32..9, 0..200), at in 0_usize..200, block in 1_u32..40
        ) {
            let size = BlockSize::new(block).unwrap();
            let root = BlockKey::from_raw(1);
            let mut other = tokens.clone();
            if let Some(token) = other.get_mut(at) {
                *token += 9;
            }
            let (a, b) = (Chain::new(root, size, &tokens), Chain::new(root, size, &other));
            prop_assert_eq!(a.keys.len(), tokens.len() / block as usize);
            prop_assert_eq!(a.contents.len(), a.keys.len());
            let shared = if at < tokens.len() { at / block as usize } else { a.keys.len() };
            for (n, (one, two)) in a.keys.iter().zip(&b.keys).enumerate() {
                prop_assert_eq!(one == two, n < shared);
            }
        }
    }

    #[test]
    fn every_part_of_a_key_space_separates_it() {
        let size = |n| BlockSize::new(n).unwrap();
        let base = KeySpace {
            group: "a",
            lora: None,
            salt: None,
            block_size: size(16),
        };
        let spaces = [
            base,
            KeySpace { group: "b", ..base },
            KeySpace {
                lora: Some(""),
                ..base
            },
            KeySpace {
                lora: Some("x"),
                ..base
            },
            KeySpace {
                salt: Some("x"),
                ..base
            },
            KeySpace {
                salt: Some(""),
                ..base
            },
            KeySpace {
                lora: Some("x"),
                salt: Some("y"),
                ..base
            },
            KeySpace {
                lora: Some("xy"),
                salt: Some(""),
                ..base
            },
            KeySpace { group: "ax", ..base },
            KeySpace {
                block_size: size(32),
                ..base
            },
        ];
        let roots: std::collections::HashSet<BlockKey> =
            spaces.iter().map(|space| KeySeed::new(5).root(space)).collect();
        assert_eq!(roots.len(), spaces.len());
        assert_ne!(KeySeed::new(5).root(&base), KeySeed::new(6).root(&base));
    }

    #[test]
    fn an_item_changes_the_content_by_its_identifier_and_its_offset() {
        let plain = ContentHash::of(&[1, 2, 3]);
        let all = [
            plain,
            plain.with_item("a", 0),
            plain.with_item("b", 0),
            plain.with_item("a", -3),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| other != one));
        }
    }

    #[test]
    fn no_block_size_is_zero() {
        assert_eq!(BlockSize::new(0), None);
    }
}
