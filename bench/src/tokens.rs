//! What it costs to get a chat's token ids: from the request's body.

use std::{path::Path, time::Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use lmetric_epp::request::{Asked, Head, PromptInput, read};
use lmetric_tokenize::ModelTokenizer;
use serde_json::{Value, json};

use crate::{
    prose::{Prose, Writer},
    results::Figure,
    workload::Numbers,
};

const SYSTEM: usize = 2_048;
const ASKED: usize = 512;
const ANSWERED: usize = 256;
/// Tokens of a chat, and chats that take turns.
const LONG: (usize, u64) = (32_768, 8);
const SHORT: (usize, u64) = (8_192, 32);

/// Body in, ids out: `tokenize/cold` is a chat of 32k tokens that nobody saw, `tokenize/next-turn-…` the same chat
/// with its answer and one more question, after the first turns of all other chats.
pub fn figures(folder: &Path, runs: usize) -> anyhow::Result<Vec<Figure>> {
    let prose = Prose::read(Path::new("."))?;
    let writer = Writer::new(prose, &load(folder)?)?;
    eprintln!("{:.2} bytes of prose are a token", writer.bytes_per_token);
    let times = Times(&writer);
    let (mut cold, mut long, mut short) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..runs as u64 {
        let (first, later) = times.run(folder, LONG, run)?;
        cold.push(first);
        long.push(later);
        short.push(times.run(folder, SHORT, run)?.1);
    }
    Ok(vec![
        Figure::times("tokenize/cold", cold),
        Figure::times("tokenize/next-turn-32k", long),
        Figure::times("tokenize/next-turn-8k", short),
    ])
}

/// How long chats take: turns before the last, and the last.
struct Times<'a>(&'a Writer);

impl Times<'_> {
    /// Times of the chats' turns before the last, and of their last.
    fn run(&self, folder: &Path, chats: (usize, u64), run: u64) -> anyhow::Result<(Vec<u64>, Vec<u64>)> {
        let tokenizer = load(folder)?;
        let (length, chats) = chats;
        let mut numbers = Numbers(1_000 * run + length as u64);
        let chats: Vec<_> = (0..chats).map(|_| self.chat(&mut numbers, length)).collect();
        let first = chats
            .iter()
            .map(|turns| timed(&tokenizer, &turns[..turns.len() - 2], length));
        let first = first.collect::<anyhow::Result<_>>()?;
        let later = chats.iter().map(|turns| timed(&tokenizer, turns, length));
        Ok((first, later.collect::<anyhow::Result<_>>()?))
    }

    /// All turns of a chat that is `length` tokens long with the last.
    fn chat(&self, numbers: &mut Numbers, length: usize) -> Vec<Value> {
        let mut turns = vec![
            self.turn("system", numbers, SYSTEM),
            self.turn("user", numbers, ASKED),
        ];
        for _ in 0..(length - SYSTEM - ASKED) / (ASKED + ANSWERED) {
            turns.push(self.turn("assistant", numbers, ANSWERED));
            turns.push(self.turn("user", numbers, ASKED));
        }
        turns
    }

    fn turn(&self, role: &str, numbers: &mut Numbers, tokens: usize) -> Value {
        json!({"role": role, "content": self.0.text(numbers, tokens)})
    }
}

fn load(folder: &Path) -> anyhow::Result<ModelTokenizer> {
    ModelTokenizer::load(folder).with_context(|| format!("{}: no tokenizer", folder.display()))
}

fn timed(tokenizer: &ModelTokenizer, turns: &[Value], length: usize) -> anyhow::Result<u64> {
    let body = Bytes::from(serde_json::to_vec(
        &json!({"model": "m", "messages": turns, "stream": true}),
    )?);
    let asked = Asked {
        head: Head {
            path: "/v1/chat/completions".to_owned(),
            ..Head::default()
        },
        subset: None,
        body,
    };
    let started = Instant::now();
    let request = read(asked).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
    let [PromptInput::Chat(chat)] = request.prompts.as_slice() else {
        bail!("the body is no chat");
    };
    let ids = tokenizer.encode_chat(chat)?.ids;
    let took = started.elapsed().as_nanos() as u64;
    // some documents have more tokens to a byte than others
    if ids.len().abs_diff(length) > length / 2 {
        bail!("{} tokens are no chat of {length}", ids.len());
    }
    Ok(took)
}
