//! What it costs to get a chat's token ids: from the request's body.

use std::{path::Path, time::Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use lmetric_epp::request::{Asked, Head, PromptInput, read};
use lmetric_tokenize::ModelTokenizer;
use serde_json::{Value, json};

use crate::{results::Figure, workload::Numbers};

/// Tokens of a long chat.
const LONG: usize = 32_768;
const SYSTEM: usize = 2_048;
const ASKED: usize = 512;
const ANSWERED: usize = 256;
const WORDS: [&str; 24] = [
    "the", "engine", "stores", "a", "block", "of", "sixteen", "tokens", "when", "its", "last", "one", "is",
    "computed", "and", "tells", "everyone", "who", "listens", "that", "it", "holds", "prefix", "now",
];

/// `tokenize/cold` and `tokenize/next-turn-32k`: body in, ids out.
pub fn figures(folder: &Path, runs: usize) -> anyhow::Result<Vec<Figure>> {
    let tokenizer = load(folder)?;
    let each = {
        let sample = text(&mut Numbers(1), 1_000);
        let ids = tokenizer.encode_text(&sample, false).context("a text")?.ids;
        ids.len() as f64 / 1_000.0
    };
    let words = |tokens: usize| (tokens as f64 / each) as usize;
    let (mut cold, mut next) = (Vec::new(), Vec::new());
    for run in 0..runs as u64 {
        let tokenizer = load(folder)?;
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for chat in 0..8 {
            let mut numbers = Numbers(1_000 * run + chat);
            let mut turns = vec![turn("system", &mut numbers, words(SYSTEM))];
            let mut length = SYSTEM;
            while length + ASKED + ANSWERED < LONG {
                turns.push(turn("user", &mut numbers, words(ASKED)));
                turns.push(turn("assistant", &mut numbers, words(ANSWERED)));
                length += ASKED + ANSWERED;
            }
            turns.push(turn("user", &mut numbers, words(ASKED)));
            first.push(timed(&tokenizer, &turns)?);
            turns.push(turn("assistant", &mut numbers, words(ANSWERED)));
            turns.push(turn("user", &mut numbers, words(ASKED)));
            later.push(timed(&tokenizer, &turns)?);
        }
        cold.push(first);
        next.push(later);
    }
    Ok(vec![
        Figure::times("tokenize/cold", cold),
        Figure::times("tokenize/next-turn-32k", next),
    ])
}

fn load(folder: &Path) -> anyhow::Result<ModelTokenizer> {
    ModelTokenizer::load(folder).with_context(|| format!("{}: no tokenizer", folder.display()))
}

fn turn(role: &str, numbers: &mut Numbers, words: usize) -> Value {
    json!({"role": role, "content": text(numbers, words)})
}

fn text(numbers: &mut Numbers, words: usize) -> String {
    let mut text = String::new();
    for _ in 0..words {
        text.push_str(WORDS[numbers.below(WORDS.len() as u64) as usize]);
        text.push(' ');
    }
    text
}

fn timed(tokenizer: &ModelTokenizer, turns: &[Value]) -> anyhow::Result<u64> {
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
    if ids.len() < LONG / 2 {
        bail!("{} tokens are no long chat", ids.len());
    }
    Ok(took)
}
