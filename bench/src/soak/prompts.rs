//! Prompts that repeat and die out: so many chats at a time, each of which grows turn by turn until it is full and another one begins;
//! now and then one prompt that everybody asks for a while.

use std::sync::Arc;

use lmetric_prefix::TokenId;

use crate::workload::{BLOCK, Conversation, Numbers};

const SYSTEM_PROMPTS: u64 = 16;
const SYSTEM_TOKENS: usize = 2_048;
/// Tokens of a chat at its full length.
const LENGTH: usize = 8_192;
const ASKED: usize = 32;
const ANSWERED: usize = 16;
/// Requests from the beginning of one craze to the beginning of the next, and how many of them it lasts.
const CRAZES: u64 = 30_000;
const CRAZE: u64 = 6_000;

/// One request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The chat.
    pub conversation: Arc<Conversation>,
    /// Blocks of the prompt.
    pub prompt: usize,
    /// Blocks with the answer.
    pub answered: usize,
}

/// All chats that go on.
pub struct Prompts {
    systems: Vec<Vec<TokenId>>,
    chats: Vec<Asked>,
    craze: Asked,
    asked: u64,
}

impl Prompts {
    /// So many chats.
    pub fn new(chats: usize, numbers: &mut Numbers) -> Self {
        let systems: Vec<_> = (0..SYSTEM_PROMPTS)
            .map(|_| numbers.tokens(SYSTEM_TOKENS))
            .collect();
        Self {
            chats: (0..chats.max(1)).map(|_| fresh(&systems, numbers)).collect(),
            craze: fresh(&systems, numbers),
            systems,
            asked: 0,
        }
    }

    /// The next request: a turn further in a chat, once in ten times the turn before again, in a craze four times in ten the same prompt.
    pub fn next(&mut self, numbers: &mut Numbers) -> Asked {
        let at = self.asked % CRAZES;
        self.asked += 1;
        if at == 0 {
            self.craze = fresh(&self.systems, numbers);
        }
        if at < CRAZE && numbers.below(10) < 4 {
            return self.craze.clone();
        }
        let number = numbers.below(self.chats.len() as u64) as usize;
        if numbers.below(10) > 0 {
            self.go_on(number, numbers);
        }
        self.chats[number].clone()
    }

    fn go_on(&mut self, number: usize, numbers: &mut Numbers) {
        let chat = &mut self.chats[number];
        let prompt = chat.answered + ASKED;
        let answered = prompt + ANSWERED;
        if answered * BLOCK > LENGTH {
            *chat = fresh(&self.systems, numbers);
        } else {
            (chat.prompt, chat.answered) = (prompt, answered);
        }
    }
}

/// The first turn of a new chat.
fn fresh(systems: &[Vec<TokenId>], numbers: &mut Numbers) -> Asked {
    let mut tokens = systems[numbers.below(SYSTEM_PROMPTS) as usize].clone();
    tokens.extend(numbers.tokens(LENGTH - SYSTEM_TOKENS));
    let prompt = SYSTEM_TOKENS / BLOCK + ASKED;
    Asked {
        conversation: Arc::new(Conversation::new(tokens)),
        prompt,
        answered: prompt + ANSWERED,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn chats_repeat_grow_die_out_and_stay_as_many() {
        let mut numbers = Numbers(3);
        let mut prompts = Prompts::new(10, &mut numbers);
        let mut seen: HashMap<u64, u32> = HashMap::new();
        for _ in 0..2_000 {
            let asked = prompts.next(&mut numbers);
            assert!(asked.answered <= asked.conversation.hashes.len());
            *seen.entry(asked.conversation.hashes[200]).or_default() += 1;
        }
        assert_eq!(prompts.chats.len(), 10);
        assert!(seen.len() > 100, "{} chats", seen.len());
        let most = seen.values().max().copied().unwrap_or(0);
        assert!((600..1_000).contains(&most), "a craze was asked for {most} times");
    }
}
