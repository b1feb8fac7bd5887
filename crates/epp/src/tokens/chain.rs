//! From tokens to key chains: one for each block size among the endpoints of the request's group.

use std::sync::Arc;

use lmetric_prefix::{BlockKey, BlockSize, Chain, ContentHash, KeySeed, KeySpace};
use lmetric_scheduler::{Prompt, SpaceSpec};
use lmetric_tokenize::{Media, Tokenized};

use super::{Content, Counted};

/// Everything but tokens that a request's keys depend on.
#[derive(Clone, Copy, Debug)]
pub struct Chains<'a> {
    /// Seed of all keys.
    pub seed: KeySeed,
    /// Tokenizer group.
    pub group: &'a str,
    /// LoRA adapter.
    pub lora: Option<&'a str>,
    /// `cache_salt`.
    pub salt: Option<&'a str>,
}

impl Chains<'_> {
    /// The prompts as the scheduler takes them. O(tokens) for each space of the group.
    pub fn prompts(&self, counted: &Counted, spaces: &[SpaceSpec]) -> Vec<Prompt> {
        let spaces = spaces.iter().filter(|space| *space.group == *self.group);
        let mut prompts: Vec<Prompt> = counted
            .prompts
            .iter()
            .map(|prompt| Prompt {
                tokens: prompt.tokens,
                chains: Vec::new(),
            })
            .collect();
        for space in spaces {
            for (prompt, counted) in prompts.iter_mut().zip(&counted.prompts) {
                let (tokens, guess) = match &counted.content {
                    Content::Exact(tokens) => (tokens, false),
                    Content::Guess(tokens) => (tokens, true),
                };
                let chain = chain(self.root(space.block_size, guess), space.block_size, tokens);
                prompt.chains.push((space.clone(), Arc::new(chain)));
            }
        }
        prompts
    }

    /// Guessed keys begin elsewhere: they must never meet an engine's.
    fn root(&self, block_size: BlockSize, guess: bool) -> BlockKey {
        let root = self.seed.root(&KeySpace {
            group: self.group,
            lora: self.lora,
            salt: self.salt,
            block_size,
        });
        if guess {
            root.child(ContentHash::of(&[]))
        } else {
            root
        }
    }
}

/// The blocks before the first placeholder that nobody can name; media that are named are folded in as the
/// engine does it.
fn chain(root: BlockKey, size: BlockSize, tokens: &Tokenized) -> Chain {
    let Tokenized {
        ids,
        media,
        matchable,
    } = tokens;
    let ids = &ids[..(*matchable).min(ids.len())];
    let mut chain = Chain::new(root, size, ids);
    let Some(first) = media.iter().find(|media| media.length > 0) else {
        return chain;
    };
    let size = size.get() as usize;
    let mut parent = match first.offset / size {
        0 => root,
        before => match chain.keys.get(before - 1) {
            Some(key) => *key,
            None => return chain,
        },
    };
    for at in first.offset / size..chain.keys.len() {
        let content = fold(chain.contents[at], media, at * size, size);
        parent = parent.child(content);
        chain.contents[at] = content;
        chain.keys[at] = parent;
    }
    chain
}

fn fold(content: ContentHash, media: &[Media], start: usize, size: usize) -> ContentHash {
    media
        .iter()
        .filter(|item| item.offset < start + size && item.offset + item.length > start)
        .filter_map(|item| Some((item.hash.as_deref()?, item.offset as i64 - start as i64)))
        .fold(content, |content, (hash, offset)| content.with_item(hash, offset))
}

#[cfg(test)]
mod tests {
    use super::{super::PromptTokens, super::Rung, *};

    fn space(group: &str, size: u32) -> SpaceSpec {
        SpaceSpec {
            group: group.into(),
            block_size: BlockSize::new(size).expect("not zero"),
        }
    }

    fn counted(content: Content) -> Counted {
        Counted {
            rung: Rung::Tokenizer,
            prompts: vec![PromptTokens { tokens: 40, content }],
        }
    }

    fn chains<'a>(lora: Option<&'a str>, salt: Option<&'a str>) -> Chains<'a> {
        Chains {
            seed: KeySeed::new(1),
            group: "m",
            lora,
            salt,
        }
    }

    #[test]
    fn only_spaces_of_the_own_group_get_a_chain() {
        let counted = counted(Content::Exact(Tokenized::plain((0..40).collect())));
        let spaces = [space("m", 16), space("other", 16), space("m", 32)];
        let prompts = chains(None, None).prompts(&counted, &spaces);
        let lengths: Vec<usize> = prompts[0]
            .chains
            .iter()
            .map(|(_, chain)| chain.keys.len())
            .collect();
        assert_eq!(lengths, [2, 1]);
    }

    #[test]
    fn adapter_salt_and_guessing_each_make_keys_of_their_own() {
        let ids: Vec<u32> = (0..40).collect();
        let exact = counted(Content::Exact(Tokenized::plain(ids.clone())));
        let guess = counted(Content::Guess(Tokenized::plain(ids)));
        let first = |chains: Chains<'_>, counted: &Counted| {
            chains.prompts(counted, &[space("m", 16)])[0].chains[0].1.keys[0]
        };
        let keys = [
            first(chains(None, None), &exact),
            first(chains(Some("sql"), None), &exact),
            first(chains(None, Some("s")), &exact),
            first(chains(None, None), &guess),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], first(chains(None, None), &exact));
    }

    #[test]
    fn another_picture_changes_the_blocks_from_its_first_on() {
        let tokens = |hash: &str| Tokenized {
            ids: vec![7; 64],
            media: vec![Media {
                offset: 20,
                length: 20,
                hash: Some(hash.to_owned()),
            }],
            matchable: 64,
        };
        let keys = |hash: &str| {
            let counted = counted(Content::Exact(tokens(hash)));
            chains(None, None).prompts(&counted, &[space("m", 16)])[0].chains[0]
                .1
                .clone()
        };
        let (one, other) = (keys("one"), keys("other"));
        let differs: Vec<bool> = (0..4).map(|at| one.contents[at] != other.contents[at]).collect();
        assert_eq!(differs, [false, true, true, false]);
        let keys_differ: Vec<bool> = (0..4).map(|at| one.keys[at] != other.keys[at]).collect();
        assert_eq!(keys_differ, [false, true, true, true]);
        // the picture begins 4 ids into its first block and 12 before its second
        let plain = ContentHash::of(&[7; 16]);
        assert_eq!(
            one.contents[1..3],
            [plain.with_item("one", 4), plain.with_item("one", -12)]
        );
    }

    #[test]
    fn the_match_stops_at_a_placeholder_that_nobody_knows() {
        let counted = counted(Content::Exact(Tokenized {
            ids: vec![7; 64],
            media: Vec::new(),
            matchable: 33,
        }));
        let prompts = chains(None, None).prompts(&counted, &[space("m", 16)]);
        assert_eq!(prompts[0].chains[0].1.keys.len(), 2);
    }
}
