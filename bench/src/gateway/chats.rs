//! Chats of about 8,000 tokens over 16 system prompts, with the token ids that an engine would compute for them.
//!
//! A chat begins with a system prompt of 2,048 tokens and a question of 4,096 (a document, as a rule), and goes on with answers of 256
//! and questions of 512: prompts of about 6,144 to 9,984 tokens over six turns, 8,064 in the mean.

use std::{collections::VecDeque, path::Path, sync::Arc};

use anyhow::{Context, ensure};
use bytes::Bytes;
use lmetric_prefix::TokenId;
use lmetric_tokenize::{ChatRequest, ModelTokenizer};
use serde_json::{Value, json};

use crate::{
    prose::{Prose, Writer},
    workload::{BLOCK, Conversation, Numbers},
};

/// The model that is asked for.
pub const MODEL: &str = "qwen3";
/// Tokens of an answer.
pub const ANSWERED: usize = 256;
const SYSTEM_PROMPTS: u64 = 16;
const SYSTEM: usize = 2_048;
const FIRST: usize = 4_096;
const ASKED: usize = 512;
const TURNS: usize = 6;

/// A chat at its full length.
#[derive(Debug)]
pub struct Chat {
    /// Its tokens, those of a question more than is asked among them, and the engines' hashes of their blocks.
    pub conversation: Conversation,
    /// Each message as JSON.
    messages: Vec<Bytes>,
    answers: Vec<String>,
    /// Tokens of each turn's prompt.
    prompts: Vec<usize>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Turn {
    chat: Arc<Chat>,
    number: usize,
}

impl Turn {
    /// The chat that it belongs to.
    pub fn conversation(&self) -> &Conversation {
        &self.chat.conversation
    }

    /// Tokens of the prompt.
    pub fn prompt(&self) -> usize {
        self.chat.prompts[self.number]
    }

    /// Full blocks once so many tokens of the answer are there.
    pub fn blocks(&self, answered: usize) -> usize {
        (self.prompt() + answered.min(ANSWERED)).min(self.chat.conversation.tokens.len()) / BLOCK
    }

    /// What is answered.
    pub fn answer(&self) -> &str {
        &self.chat.answers[self.number]
    }

    /// What is sent.
    pub fn body(&self) -> Bytes {
        let messages = &self.chat.messages[..2 * self.number + 2];
        let length: usize = messages.iter().map(|message| message.len() + 1).sum();
        let mut body = Vec::with_capacity(length + 128);
        body.extend_from_slice(format!(r#"{{"model":"{MODEL}","messages":["#).as_bytes());
        for (number, message) in messages.iter().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            body.extend_from_slice(message);
        }
        body.extend_from_slice(
            br#"],"stream":true,"stream_options":{"include_usage":true},"max_tokens":256}"#,
        );
        Bytes::from(body)
    }
}

/// Makes chats, no two alike.
pub struct Maker {
    tokenizer: ModelTokenizer,
    writer: Writer,
    systems: Vec<Value>,
    numbers: Numbers,
}

impl Maker {
    /// With the tokenizer in this folder.
    pub fn new(folder: &Path, seed: u64) -> anyhow::Result<Self> {
        let tokenizer = ModelTokenizer::load(folder).with_context(|| {
            format!(
                "{}: no tokenizer; scripts/bench-tokenizer.sh gets one",
                folder.display()
            )
        })?;
        let writer = Writer::new(Prose::read(Path::new("."))?, &tokenizer)?;
        let mut numbers = Numbers(seed);
        let systems = (0..SYSTEM_PROMPTS)
            .map(|_| message("system", &writer.text(&mut numbers, SYSTEM)))
            .collect();
        Ok(Self {
            tokenizer,
            writer,
            systems,
            numbers,
        })
    }

    /// One more.
    pub fn chat(&mut self) -> anyhow::Result<Chat> {
        let numbers = &mut self.numbers;
        // the smaller of two draws: some system prompts are more popular
        let system = numbers.below(SYSTEM_PROMPTS).min(numbers.below(SYSTEM_PROMPTS));
        let mut messages = vec![self.systems[system as usize].clone()];
        let mut answers = Vec::with_capacity(TURNS);
        let mut prompts: Vec<Vec<TokenId>> = Vec::with_capacity(TURNS + 1);
        for turn in 0..=TURNS {
            let asked = if turn == 0 { FIRST } else { ASKED };
            messages.push(message("user", &self.writer.text(numbers, asked)));
            let request = ChatRequest {
                messages: messages.iter().cloned().map(Into::into).collect(),
                ..ChatRequest::default()
            };
            prompts.push(self.tokenizer.encode_chat(&request).context("a chat")?.ids);
            let answer = plain(&self.writer.text(numbers, ANSWERED));
            messages.push(message("assistant", &answer));
            answers.push(answer);
        }
        let whole = prompts.pop().context("a chat has turns")?;
        ensure!(
            prompts.iter().all(|prompt| whole.starts_with(prompt)),
            "the tokenizer's chat template changes what was said before; give one that does not (scripts/bench-tokenizer.sh)"
        );
        Ok(Chat {
            messages: messages
                .iter()
                .map(|message| serde_json::to_vec(message).map(Bytes::from))
                .collect::<Result<_, _>>()?,
            answers,
            prompts: prompts.iter().map(Vec::len).collect(),
            conversation: Conversation::new(whole),
        })
    }
}

/// A text that needs no escapes in JSON but for line breaks, may be cut anywhere, and has nothing at its ends that a template strips.
fn plain(text: &str) -> String {
    let keep = |letter: char| match letter {
        '"' | '\\' => '\'',
        letter if letter == '\n' || letter == ' ' || letter.is_ascii_graphic() => letter,
        _ => '-',
    };
    text.trim().chars().map(keep).collect()
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// Chats that go on side by side: each has its next turn when all others have had theirs, and one that is over makes place for another.
#[derive(Default)]
pub struct Talk {
    active: VecDeque<Turn>,
}

impl Talk {
    /// So many chats, as many in each turn.
    pub fn new(chats: usize, maker: &mut Maker) -> anyhow::Result<Self> {
        let turn = |number: usize| {
            anyhow::Ok(Turn {
                chat: Arc::new(maker.chat()?),
                number: number % TURNS,
            })
        };
        Ok(Self {
            active: (0..chats.max(1)).map(turn).collect::<anyhow::Result<_>>()?,
        })
    }

    /// The next requests.
    pub fn next(&mut self, count: usize, maker: &mut Maker) -> anyhow::Result<Vec<Turn>> {
        let mut turns = Vec::with_capacity(count);
        for _ in 0..count {
            let turn = self.active.pop_front().context("a talk has chats")?;
            let number = turn.number + 1;
            self.active.push_back(if number < TURNS {
                Turn {
                    chat: Arc::clone(&turn.chat),
                    number,
                }
            } else {
                Turn {
                    chat: Arc::new(maker.chat()?),
                    number: 0,
                }
            });
            turns.push(turn);
        }
        Ok(turns)
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! A chat that no tokenizer was asked for.

    use super::*;

    pub(crate) fn turn(numbers: &mut Numbers) -> Turn {
        Turn {
            chat: Arc::new(Chat {
                conversation: Conversation::new(numbers.tokens(96)),
                messages: (0..4).map(|n| Bytes::from(format!(r#"{{"n":{n}}}"#))).collect(),
                answers: vec!["yes".to_owned(), "no".to_owned()],
                prompts: vec![40, 80],
            }),
            number: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_sends_all_that_was_said_before_and_computes_full_blocks() {
        let turn = testing::turn(&mut Numbers(1));
        let sent: Value = serde_json::from_slice(&turn.body()).unwrap();
        assert_eq!(sent["messages"], json!([{"n": 0}, {"n": 1}]));
        assert_eq!(sent["stream"], json!(true));
        assert_eq!([turn.blocks(0), turn.blocks(8), turn.blocks(9)], [2, 3, 3]);
        let last = Turn { number: 1, ..turn };
        let sent: Value = serde_json::from_slice(&last.body()).unwrap();
        assert_eq!(sent["messages"].as_array().map(Vec::len), Some(4));
        assert_eq!(last.blocks(1_000), 6, "no more than the chat has");
    }
}
