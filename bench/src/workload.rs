//! The conversations and KV events that every figure is measured with; a peer that is to be compared gets the same.
//!
//! Chats over 16 system prompts of 2,048 tokens; turns of 512 tokens in (one event) and 256 out (sixteen one-block events); a tenth
//! of the turns moves to another endpoint, which stores all that it lacks in one event.

use std::collections::HashSet;

use lmetric_prefix::TokenId;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Tokens in a block.
pub const BLOCK: usize = 16;
const SYSTEM_PROMPTS: u64 = 16;
const SYSTEM_TOKENS: usize = 2_048;
const IN_BLOCKS: usize = 32;
const OUT_BLOCKS: usize = 16;

/// splitmix64: the same numbers in every program that is compared.
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// So many token ids.
    pub fn tokens(&mut self, count: usize) -> Vec<TokenId> {
        (0..count).map(|_| (self.draw() % 128_000) as TokenId).collect()
    }
}

/// A chat at its full length.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// All its tokens.
    pub tokens: Vec<TokenId>,
    /// The engine's hash of each block.
    pub hashes: Vec<u64>,
}

impl Conversation {
    /// These tokens and the hashes that an engine gives their blocks.
    pub fn new(tokens: Vec<TokenId>) -> Self {
        let mut parent = 0;
        let hashes = tokens
            .chunks_exact(BLOCK)
            .map(|block| {
                let bytes: Vec<u8> = block.iter().flat_map(|token| token.to_le_bytes()).collect();
                parent = xxh3_64_with_seed(&bytes, parent);
                parent
            })
            .collect();
        Self { tokens, hashes }
    }
}

/// One event: these blocks of a conversation are stored by an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// Which endpoint.
    pub endpoint: u16,
    /// Which conversation.
    pub conversation: usize,
    /// First block.
    pub from: usize,
    /// One past the last.
    pub to: usize,
}

/// Conversations and the events of their turns, in order.
#[derive(Debug)]
pub struct Workload {
    /// Short ones first.
    pub conversations: Vec<Conversation>,
    /// How many of them are short.
    pub short: usize,
    /// In order.
    pub events: Vec<Stored>,
    /// Distinct (endpoint, block) pairs after all events.
    pub pairs: usize,
    /// Distinct blocks.
    pub blocks: usize,
}

impl Workload {
    /// So many chats of 8,192 and of 32,768 tokens over `endpoints`.
    pub fn new(short: usize, long: usize, endpoints: u64, seed: u64) -> Self {
        Self::of_lengths(short, long, (8_192, 32_768), endpoints, seed)
    }

    /// The same with conversations of so many tokens, short and long ones.
    pub fn of_lengths(
        short: usize,
        long: usize,
        (short_tokens, long_tokens): (usize, usize),
        endpoints: u64,
        seed: u64,
    ) -> Self {
        let mut numbers = Numbers(seed);
        let systems: Vec<_> = (0..SYSTEM_PROMPTS)
            .map(|_| numbers.tokens(SYSTEM_TOKENS))
            .collect();
        let mut homes = Vec::new();
        let conversations: Vec<_> = (0..short + long)
            .map(|number| {
                let length = if number < short { short_tokens } else { long_tokens };
                // the smaller of two draws: some system prompts are more popular
                let system = numbers.below(SYSTEM_PROMPTS).min(numbers.below(SYSTEM_PROMPTS));
                let mut tokens = systems[system as usize].clone();
                tokens.extend(numbers.tokens(length - SYSTEM_TOKENS));
                homes.push(numbers.below(endpoints));
                Conversation::new(tokens)
            })
            .collect();
        let mut workload = Self {
            conversations,
            short,
            events: Vec::new(),
            pairs: 0,
            blocks: 0,
        };
        workload.play(&mut numbers, homes, endpoints);
        workload
    }

    /// Turn by turn, all conversations interleaved.
    fn play(&mut self, numbers: &mut Numbers, mut homes: Vec<u64>, endpoints: u64) {
        let first = SYSTEM_TOKENS / BLOCK;
        let mut held: Vec<HashSet<u64>> = vec![HashSet::new(); endpoints as usize];
        let mut reached = vec![first; self.conversations.len()];
        let mut goes_on = true;
        while std::mem::take(&mut goes_on) {
            for (number, conversation) in self.conversations.iter().enumerate() {
                let end = conversation.hashes.len();
                let at = reached[number];
                if at >= end {
                    continue;
                }
                goes_on = true;
                if at > first && numbers.below(10) == 0 {
                    homes[number] = numbers.below(endpoints);
                }
                let read = (at + IN_BLOCKS).min(end);
                let written = (read + OUT_BLOCKS).min(end);
                let holder = &mut held[homes[number] as usize];
                let missing = (0..read)
                    .find(|block| !holder.contains(&conversation.hashes[*block]))
                    .unwrap_or(read);
                let stored = |from, to| Stored {
                    endpoint: homes[number] as u16,
                    conversation: number,
                    from,
                    to,
                };
                if missing < read {
                    self.events.push(stored(missing, read));
                }
                let fresh = (read..written).filter(|block| !holder.contains(&conversation.hashes[*block]));
                self.events.extend(fresh.map(|block| stored(block, block + 1)));
                holder.extend(&conversation.hashes[..written]);
                reached[number] = written;
            }
        }
        self.pairs = held.iter().map(HashSet::len).sum();
        let distinct: HashSet<u64> = held.into_iter().flatten().collect();
        self.blocks = distinct.len();
    }
}
