//! The next turn of a long chat, from the body's bytes to ids. Prints times; run it with
//! `cargo test --release -p lmetric-tokenize --test speed -- --nocapture` for figures that count.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lmetric_tokenize::{ChatBody, ChatRequest, ModelTokenizer, Tokenized};
use serde_json::{Value, json};

/// Some 27,000 tokens of the shipped tokenizer, with 240 words a turn.
const TURNS: usize = 60;

fn dir() -> PathBuf {
    let own = common::testdata("tiny-qwen2");
    std::env::var_os("LMETRIC_TOKENIZER").map_or(own, Into::into)
}

fn body(turns: usize, words: usize) -> Vec<u8> {
    const TEXT: [&str; 12] = [
        "the ",
        "library ",
        "opens ",
        "at ",
        "nine, ",
        "and ",
        "closes ",
        "when ",
        "everyone ",
        "has ",
        "left.\n",
        "So ",
    ];
    let content = |turn: usize| {
        (0..words)
            .map(|at| TEXT[(at * 7 + turn * 5 + at * at % 5) % 12])
            .collect::<String>()
    };
    let role = |turn: usize| {
        if turn.is_multiple_of(2) {
            "user"
        } else {
            "assistant"
        }
    };
    let messages: Vec<Value> = (0..turns)
        .map(|turn| json!({"role": role(turn), "content": format!("{turn} {}", content(turn))}))
        .collect();
    json!({"model": "m", "messages": messages, "stream": true})
        .to_string()
        .into_bytes()
}

fn encode(model: &ModelTokenizer, body: &[u8]) -> (Tokenized, [Duration; 3]) {
    let started = Instant::now();
    let mut parsed: ChatBody = serde_json::from_slice(body).unwrap();
    let chat = ChatRequest::from_openai_body(&mut parsed).unwrap();
    let parsed_in = started.elapsed();
    let started = Instant::now();
    model.render_chat(&chat).unwrap();
    let rendered_in = started.elapsed();
    let started = Instant::now();
    let ids = model.encode_chat(&chat).unwrap();
    (ids, [parsed_in, rendered_in, started.elapsed()])
}

#[test]
fn the_next_turn_of_a_long_chat_has_the_ids_of_a_fresh_tokenizer() {
    let words = std::env::var("LMETRIC_WORDS").map_or(240, |words| words.parse().unwrap());
    let warm = ModelTokenizer::load(&dir()).unwrap();
    for turns in [TURNS - 2, TURNS] {
        let body = body(turns, words);
        let (ids, [parse, render, all]) = encode(&warm, &body);
        println!(
            "{turns} turns, {} bytes, {} tokens: parse {parse:?}, then {all:?} of which template {render:?}",
            body.len(),
            ids.ids.len()
        );
        let fresh = ModelTokenizer::load(&dir()).unwrap();
        assert_eq!(encode(&fresh, &body).0, ids);
    }
}
