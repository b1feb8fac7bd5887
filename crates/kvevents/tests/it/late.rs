//! A picker that starts late: the ring of an engine holds 200 batches, more than 2,000 lie behind it.

use std::collections::HashSet;

use lmetric_kvevents::{Adoption, SourceState};
use lmetric_prefix::ContentHash;
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::{
    encode::{BLOCK, Chain},
    plain::{Fed, ID},
};

/// An engine with an endless cache: what it hits, and what it publishes.
#[derive(Default)]
struct Engine {
    held: HashSet<u64>,
    published: Vec<Vec<u8>>,
}

const CHUNK: usize = 32;

impl Engine {
    /// Serves a prompt that is answered by `answer`. Returns how many blocks were hit.
    fn serve(&mut self, prompt: &[u32], answer: &[u32]) -> usize {
        let whole = Chain::of([prompt, answer].concat());
        let most = (prompt.len() - 1) / BLOCK as usize;
        let hit = (0..most)
            .find(|&at| !self.held.contains(&whole.hashes[at]))
            .unwrap_or(most);
        let full = prompt.len() / BLOCK as usize;
        let mut at = hit;
        while at < whole.hashes.len() {
            let end = if at < full { full.min(at + CHUNK) } else { at + 1 };
            self.published.push(whole.stored(at..end));
            self.held.extend(&whole.hashes[at..end]);
            at = end;
        }
        hit
    }
}

struct Conversation {
    tokens: Vec<u32>,
}

fn words(rng: &mut TestRng, least: u32, most: u32) -> Vec<u32> {
    let count = least + rng.next_u32() % (most - least);
    (0..count).map(|_| rng.next_u32() % 100_000).collect()
}

#[test]
fn after_two_turns_of_each_conversation_predictions_are_what_is_hit() {
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut engine = Engine::default();
    let system: Vec<Vec<u32>> = (0..3).map(|_| words(&mut rng, 300, 600)).collect();
    let mut conversations: Vec<Conversation> = (0..60)
        .map(|n| Conversation {
            tokens: system[n % system.len()].clone(),
        })
        .collect();
    let turn = |engine: &mut Engine, conversation: &mut Conversation, rng: &mut TestRng| {
        let question = words(rng, 4, 200);
        let prompt = [&conversation.tokens[..], &question].concat();
        let answer = words(rng, 20, 300);
        let from = engine.published.len();
        let hit = engine.serve(&prompt, &answer);
        conversation.tokens = [&prompt[..], &answer].concat();
        (prompt, hit, from)
    };
    while engine.published.len() < 2_300 {
        for conversation in &mut conversations {
            turn(&mut engine, conversation, &mut rng);
        }
    }
    let behind = engine.published.len() - 200;
    assert!(behind > 2_000);
    let mut fed = Fed::new(100_000);
    fed.skip_to(behind as u64);
    for payload in &engine.published[behind..] {
        fed.feed(payload);
    }
    assert_eq!(fed.source.state(), SourceState::Partial);

    let (mut right, mut all, mut overshot) = (0, 0, 0);
    for round in 0..3 {
        for conversation in &mut conversations {
            let (prompt, hit, from) = turn(&mut engine, conversation, &mut rng);
            let reservation = Chain::of(prompt.clone());
            let most = (prompt.len() - 1) / BLOCK as usize;
            let mut runs = Vec::new();
            fed.applied
                .index
                .longest_runs(&reservation.keys[..most], &[ID], &mut runs);
            overshot += usize::from(runs[0] as usize > hit);
            if round == 2 {
                all += 1;
                right += usize::from(runs[0] as usize == hit);
            }
            let adopt = &mut |wanted: &[ContentHash]| {
                let contents = &reservation.contents;
                let at = (0..contents.len()).find(|&at| contents[at..].starts_with(wanted))?;
                Some(Adoption {
                    parent: at
                        .checked_sub(1)
                        .map_or(reservation.keys[0], |before| reservation.keys[before]),
                    prefix: reservation.keys[..at].to_vec(),
                })
            };
            for payload in &engine.published[from..] {
                fed.feed_adopting(payload, adopt);
            }
        }
    }
    println!("{right} of {all} predicted exactly");
    assert_eq!(overshot, 0);
    assert!(right * 100 >= all * 95, "{right} of {all}");
}
