//! What events cost: vLLM's messages in, the index and the ledger told.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    fleet::Fleet,
    payload::{Run, batch},
    workload::{BLOCK, Numbers},
};

/// Events in a message: an engine's step.
const EVENTS: usize = 8;

/// Messages of fresh prompts, `per` blocks in an event, of `blocks` blocks in all at least.
pub fn messages(per: usize, blocks: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut numbers = Numbers(seed);
    (0..blocks.div_ceil(per * EVENTS))
        .map(|_| message(&mut numbers, per))
        .collect()
}

fn message(numbers: &mut Numbers, per: usize) -> Vec<u8> {
    let parts: Vec<_> = (0..EVENTS)
        .map(|_| {
            let hashes: Vec<u64> = (0..per).map(|_| numbers.draw()).collect();
            (hashes, numbers.tokens(per * BLOCK))
        })
        .collect();
    let runs: Vec<_> = parts
        .iter()
        .map(|(hashes, tokens)| Run {
            parent: None,
            hashes,
            tokens,
        })
        .collect();
    batch(&runs)
}

/// Blocks in a second, from the first byte of the first message until the index holds the last one's.
pub fn rate(per: usize, blocks: usize, seed: u64) -> f64 {
    let fleet = Fleet::new(1);
    let mut feed = fleet.source();
    let messages = messages(per, blocks, seed);
    let started = Instant::now();
    for payload in &messages {
        fleet.receive(0, &mut feed, payload);
    }
    let seconds = started.elapsed().as_secs_f64();
    let held = fleet.index.read().len();
    assert_eq!(held, messages.len() * per * EVENTS, "every block is held");
    held as f64 / seconds
}

/// Feeds messages of 32 blocks an event to the first endpoint at this rate until `over`; how many blocks.
pub fn pace(fleet: &Fleet, blocks_per_s: u64, over: &AtomicBool) -> u64 {
    const PER: usize = 32;
    // the same ones again and again, so that the index does not grow
    let messages = messages(PER, 65_536, 99);
    let mut feed = fleet.source();
    let gap = Duration::from_secs_f64((PER * EVENTS) as f64 / blocks_per_s as f64);
    let started = Instant::now();
    let mut sent: u32 = 0;
    while !over.load(Ordering::Relaxed) {
        fleet.receive(0, &mut feed, &messages[sent as usize % messages.len()]);
        sent += 1;
        let due = gap * sent;
        if let Some(wait) = due.checked_sub(started.elapsed()) {
            std::thread::sleep(wait);
        }
    }
    u64::from(sent) * (PER * EVENTS) as u64
}
