//! What it costs to hash a prompt's blocks: tokens in, content hashes and keys out.

use std::{hint::black_box, time::Instant};

use lmetric_prefix::{BlockKey, BlockSize, Chain, TokenId};

use crate::{
    results::Figure,
    workload::{BLOCK, Numbers},
};

/// Different prompts, so that no cache holds them all.
const PROMPTS: usize = 32;
/// Times each prompt is hashed in a run.
const ROUNDS: usize = 32;

/// Times of hashing prompts of `length` tokens.
pub fn figure(name: &str, length: usize, runs: usize) -> anyhow::Result<Figure> {
    let size = BlockSize::new(BLOCK as u32).ok_or_else(|| anyhow::anyhow!("blocks of no tokens"))?;
    let mut numbers = Numbers(length as u64);
    let prompts: Vec<Vec<TokenId>> = (0..PROMPTS).map(|_| numbers.tokens(length)).collect();
    let times = (0..runs).map(|run| {
        let root = BlockKey::from_raw(run as u64);
        let hashed = prompts.iter().cycle().take(PROMPTS * ROUNDS);
        hashed
            .map(|tokens| {
                let started = Instant::now();
                let chain = black_box(Chain::new(root, size, black_box(tokens)));
                let took = started.elapsed().as_nanos() as u64;
                drop(chain);
                took
            })
            .collect()
    });
    Ok(Figure::times(name, times.collect()))
}
