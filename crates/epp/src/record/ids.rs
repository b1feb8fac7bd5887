//! Ids of a prompt's blocks for a recording: chained, so that two prompts share their first k ids exactly when they share
//! their first k blocks, and keyed, so that nobody can find the tokens behind an id or join two processes' recordings.
//!
//! The hash is the standard library's keyed one (SipHash-1-3 under 128 bits drawn at random for this process). Of each
//! value the upper 53 bits are written: what a JSON number holds exactly.

use std::hash::{BuildHasher, Hasher, RandomState};

use lmetric_tokenize::{Media, Tokenized};

use crate::tokens::Chains;

/// Tokens per block of a recording.
pub const BLOCK: u32 = 16;
const BITS: u32 = 53;

/// The process's key.
#[derive(Clone, Debug, Default)]
pub struct Salt(RandomState);

impl Salt {
    /// Ids of all blocks of a prompt of `tokens` tokens, the last partial one included. Blocks that nobody can compare (after an
    /// unknown image, say) get ids of their own, made from `own`, a number that no other prompt has. O(tokens).
    pub fn ids(&self, chains: &Chains<'_>, prompt: &Tokenized, tokens: u32, own: u64) -> Box<[u64]> {
        let Tokenized {
            ids,
            media,
            matchable,
        } = prompt;
        let count = tokens.div_ceil(BLOCK) as usize;
        let known = &ids[..(*matchable).min(ids.len())];
        // a cut-off rest is no block: what follows it is not known
        let whole = known.len() >= tokens as usize;
        let comparable = if whole {
            known
        } else {
            &known[..known.len() - known.len() % BLOCK as usize]
        };
        let mut parent = self.root(chains);
        let blocks = comparable.chunks(BLOCK as usize).enumerate().take(count);
        let mut found: Vec<u64> = blocks
            .map(|(at, block)| {
                parent = self.child(parent, block, media, at * BLOCK as usize);
                parent
            })
            .collect();
        found.extend((found.len()..count).map(|at| self.0.hash_one((own, at))));
        found.into_iter().map(|hash| hash >> (64 - BITS)).collect()
    }

    /// Everything but tokens on which equality of KV entries depends.
    fn root(&self, chains: &Chains<'_>) -> u64 {
        let Chains {
            seed: _,
            group,
            lora,
            salt,
        } = chains;
        self.0.hash_one((group, lora, salt))
    }

    fn child(&self, parent: u64, block: &[u32], media: &[Media], start: usize) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u64(parent);
        for token in block {
            hasher.write_u32(*token);
        }
        let end = start + block.len();
        let touching = media
            .iter()
            .filter(|item| item.offset < end && item.offset + item.length > start);
        for item in touching {
            hasher.write_i64(item.offset as i64 - start as i64);
            hasher.write(item.hash.as_deref().unwrap_or_default().as_bytes());
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use lmetric_prefix::KeySeed;
    use proptest::prelude::*;

    use super::*;

    fn chains() -> Chains<'static> {
        Chains {
            seed: KeySeed::new(1),
            group: "m",
            lora: None,
            salt: None,
        }
    }

    fn ids(salt: &Salt, chains: &Chains<'_>, tokens: &[u32]) -> Box<[u64]> {
        salt.ids(chains, &Tokenized::plain(tokens.to_vec()), tokens.len() as u32, 0)
    }

    fn shared(one: &[u64], other: &[u64]) -> usize {
        one.iter().zip(other).take_while(|(a, b)| a == b).count()
    }

    proptest! {
        #[test]
        fn prompts_share_ids_exactly_as_far_as_they_share_blocks(
            tokens in prop::collection::vec(0_u32..9, 1..120), at in 0_usize..120,
        ) {
            let salt = Salt::default();
            let mut other = tokens.clone();
            if let Some(token) = other.get_mut(at) {
                *token += 9;
            }
            let (one, two) = (ids(&salt, &chains(), &tokens), ids(&salt, &chains(), &other));
            prop_assert_eq!(one.len(), tokens.len().div_ceil(16));
            let expected = if at < tokens.len() { at / 16 } else { one.len() };
            prop_assert_eq!(shared(&one, &two), expected);
            prop_assert!(one.iter().all(|id| *id < 1 << 53));
        }
    }

    #[test]
    fn nothing_joins_two_processes_adapters_or_salts() {
        let tokens: Vec<u32> = (0..64).collect();
        let salt = Salt::default();
        let own = ids(&salt, &chains(), &tokens);
        assert_eq!(own, ids(&salt, &chains(), &tokens));
        let others = [
            ids(&Salt::default(), &chains(), &tokens),
            ids(
                &salt,
                &Chains {
                    lora: Some("sql"),
                    ..chains()
                },
                &tokens,
            ),
            ids(
                &salt,
                &Chains {
                    salt: Some("s"),
                    ..chains()
                },
                &tokens,
            ),
            ids(
                &salt,
                &Chains {
                    group: "n",
                    ..chains()
                },
                &tokens,
            ),
        ];
        for other in others {
            assert!(own.iter().all(|id| !other.contains(id)));
        }
    }

    #[test]
    fn blocks_behind_an_unknown_image_are_nobody_elses() {
        let salt = Salt::default();
        let prompt = Tokenized {
            ids: vec![7; 60],
            media: Vec::new(),
            matchable: 40,
        };
        // the image counts as more tokens than its placeholder
        let [one, other] = [1, 2].map(|own| salt.ids(&chains(), &prompt, 100, own));
        assert_eq!((one.len(), other.len()), (7, 7));
        assert_eq!(shared(&one, &other), 2);
        assert!(one[2..].iter().all(|id| !other.contains(id)));
    }

    #[test]
    fn another_picture_is_another_block() {
        let salt = Salt::default();
        let prompt = |hash: &str| Tokenized {
            ids: vec![7; 64],
            media: vec![Media {
                offset: 20,
                length: 20,
                hash: Some(hash.to_owned()),
            }],
            matchable: 64,
        };
        let [one, other] = ["a", "b"].map(|hash| salt.ids(&chains(), &prompt(hash), 64, 0));
        assert_eq!(shared(&one, &other), 1);
    }
}
