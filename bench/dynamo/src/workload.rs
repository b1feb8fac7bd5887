//! The conversations and KV events of lmetric's benchmarks, as Dynamo's own types; the same numbers from the same seed.
//!
//! Chats over 16 system prompts of 2,048 tokens; turns of 512 tokens in (one event) and 256 out (sixteen one-block events); a tenth
//! of the turns moves to another endpoint, which stores all that it lacks in one event.

use std::collections::HashSet;

use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent, StorageTier, compute_block_hash_for_seq,
    compute_seq_hash_for_block,
};

/// Tokens in a block.
pub const BLOCK: u32 = 16;
/// Endpoints of the figures.
pub const ENDPOINTS: u64 = 64;
/// The seed that lmetric's figures are made with.
pub const SEED: u64 = 1;
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
    pub fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| (self.draw() % 128_000) as u32).collect()
    }
}

/// Dynamo's hash of each block of a prompt.
pub fn hashed(tokens: &[u32]) -> Vec<LocalBlockHash> {
    compute_block_hash_for_seq(tokens, BLOCK, BlockHashOptions::default())
}

/// A chat at its full length.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// All its tokens.
    pub tokens: Vec<u32>,
    /// Hash of each block's tokens.
    pub local: Vec<LocalBlockHash>,
    /// The engine's hash of each block.
    pub hashes: Vec<u64>,
}

impl Conversation {
    fn new(tokens: Vec<u32>) -> Self {
        let local = hashed(&tokens);
        let hashes = compute_seq_hash_for_block(&local);
        Self {
            tokens,
            local,
            hashes,
        }
    }
}

/// Blocks `from..to` of a conversation are stored on an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// Who stores.
    pub endpoint: u64,
    /// Whose blocks.
    pub conversation: usize,
    /// The first block.
    pub from: usize,
    /// The block after the last.
    pub to: usize,
}

/// Conversations and the events of their turns, in order.
#[derive(Debug)]
pub struct Workload {
    /// Short ones first.
    pub conversations: Vec<Conversation>,
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
        let mut numbers = Numbers(seed);
        let systems: Vec<_> = (0..SYSTEM_PROMPTS)
            .map(|_| numbers.tokens(SYSTEM_TOKENS))
            .collect();
        let mut homes = Vec::new();
        let conversations: Vec<_> = (0..short + long)
            .map(|number| {
                let length = if number < short { 8_192 } else { 32_768 };
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
            events: Vec::new(),
            pairs: 0,
            blocks: 0,
        };
        workload.play(&mut numbers, homes, endpoints);
        workload
    }

    /// The one that every figure is measured with.
    pub fn standard() -> Self {
        let workload = Self::new(1_000, 320, ENDPOINTS, SEED);
        eprintln!(
            "{} events, {} blocks, {} (endpoint, block) pairs",
            workload.events.len(),
            workload.blocks,
            workload.pairs
        );
        workload
    }

    /// Turn by turn, all conversations interleaved.
    fn play(&mut self, numbers: &mut Numbers, mut homes: Vec<u64>, endpoints: u64) {
        let first = SYSTEM_TOKENS / BLOCK as usize;
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
                    endpoint: homes[number],
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

    /// The beginnings of its conversations that are so long.
    pub fn prompts(&self, length: usize) -> Vec<&[u32]> {
        self.conversations
            .iter()
            .filter_map(|conversation| conversation.tokens.get(..length))
            .collect()
    }

    /// Its events as Dynamo reads them, each with the next number.
    pub fn router_events(&self) -> impl Iterator<Item = RouterEvent> {
        self.events.iter().zip(1..).map(|(event, id)| {
            let conversation = &self.conversations[event.conversation];
            let run = event.from..event.to;
            let parent = event
                .from
                .checked_sub(1)
                .map(|before| conversation.hashes[before]);
            stored(
                event.endpoint,
                id,
                parent,
                &conversation.local[run.clone()],
                &conversation.hashes[run],
            )
        })
    }
}

/// Blocks that were stored one after the other, as Dynamo reads it.
pub fn stored(
    endpoint: u64,
    id: u64,
    parent: Option<u64>,
    local: &[LocalBlockHash],
    hashes: &[u64],
) -> RouterEvent {
    let blocks = local
        .iter()
        .zip(hashes)
        .map(|(local, hash)| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(*hash),
            tokens_hash: *local,
            mm_extra_info: None,
        });
    event(
        endpoint,
        id,
        KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: parent.map(ExternalSequenceBlockHash),
            start_position: None,
            blocks: blocks.collect(),
        }),
    )
}

/// An event of an endpoint's GPU cache.
pub fn event(endpoint: u64, event_id: u64, data: KvCacheEventData) -> RouterEvent {
    let event = KvCacheEvent {
        event_id,
        data,
        dp_rank: 0,
    };
    RouterEvent::with_storage_tier(endpoint, event, StorageTier::Device)
}
