//! Prompts made from block ids: equal ids give equal tokens, different ids different ones, in every run with one salt.

use std::io::Write;

use serde_json::json;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::trace::TraceRequest;

/// Lowest token id that is used: the first ones are often special.
const FIRST_TOKEN: u32 = 100;
/// Smallest vocabulary that is accepted.
pub(super) const LEAST_VOCABULARY: u32 = 2 * FIRST_TOKEN;

/// How a prompt is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PromptKind {
    /// `/v1/completions` with token ids: prompt lengths are exact.
    Tokens,
    /// `/v1/chat/completions` with one user message of about one token a word: lengths are approximate.
    Text,
}

impl PromptKind {
    /// Path that takes it.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Tokens => "/v1/completions",
            Self::Text => "/v1/chat/completions",
        }
    }
}

/// Makes the bodies of a run.
#[derive(Clone, Debug)]
pub struct PromptMaker {
    kind: PromptKind,
    model: String,
    salt: u64,
    block_size: u32,
    vocabulary: u32,
    ignore_eos: bool,
}

impl PromptMaker {
    /// Prompts of runs with different salts share nothing. `vocabulary` is at least 200.
    pub fn new(
        kind: PromptKind,
        model: String,
        salt: &str,
        block_size: u32,
        vocabulary: u32,
        ignore_eos: bool,
    ) -> Self {
        Self {
            kind,
            model,
            salt: xxh3_64(salt.as_bytes()),
            block_size,
            vocabulary,
            ignore_eos,
        }
    }

    /// The request's JSON body, asking for a stream of `output_tokens` tokens with usage at its end. O(tokens).
    pub fn body(&self, request: &TraceRequest, output_tokens: u32) -> Vec<u8> {
        let model = json!(self.model);
        let mut body = Vec::with_capacity(request.input_tokens as usize * 6 + 256);
        let written = match self.kind {
            PromptKind::Tokens => write!(body, "{{\"model\":{model},\"prompt\":[").and_then(|()| {
                for (i, token) in self.tokens(request).enumerate() {
                    write!(body, "{}{token}", if i == 0 { "" } else { "," })?;
                }
                body.write_all(b"]")
            }),
            PromptKind::Text => write!(
                body,
                "{{\"model\":{model},\"messages\":[{{\"role\":\"user\",\"content\":\""
            )
            .and_then(|()| {
                for number in self.numbers(request) {
                    write!(body, " {}", WORDS[(number % WORDS.len() as u64) as usize])?;
                }
                body.write_all(b"\"}]")
            }),
        };
        written
            .and_then(|()| {
                write!(
                    body,
                    ",\"max_tokens\":{},\"ignore_eos\":{},\"stream\":true,\"stream_options\":{{\"include_usage\":true}}}}",
                    output_tokens.max(1),
                    self.ignore_eos
                )
            })
            .expect("a Vec takes every write");
        body
    }

    /// The prompt's token ids.
    pub fn tokens<'a>(&'a self, request: &'a TraceRequest) -> impl Iterator<Item = u32> + 'a {
        let span = u64::from(self.vocabulary - FIRST_TOKEN);
        self.numbers(request)
            .map(move |number| FIRST_TOKEN + (number % span) as u32)
    }

    /// One 64-bit number for each prompt token: a function of salt, block id and place in the block. Tokens past the
    /// last id (a tail without one) are the request's own.
    fn numbers<'a>(&'a self, request: &'a TraceRequest) -> impl Iterator<Item = u64> + 'a {
        let own = xxh3_64_with_seed(&[b"tail", &request.line.to_le_bytes()[..]].concat(), self.salt);
        request
            .blocks
            .iter()
            .map(|id| xxh3_64_with_seed(&id.to_le_bytes(), self.salt))
            .chain(std::iter::repeat(own))
            .flat_map(|block| (0..u64::from(self.block_size)).map(move |place| mix(block, place)))
            .take(request.input_tokens as usize)
    }
}

/// SplitMix64's output step (Steele, Lea, Flood 2014) at a place of the sequence that starts at `block`.
const fn mix(block: u64, place: u64) -> u64 {
    let z = block.wrapping_add((place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Short words, each one token with its blank in the usual vocabularies.
const WORDS: [&str; 64] = [
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school",
    "state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week",
    "company", "system", "program", "question", "work", "number", "night", "point", "home", "water", "room",
    "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job",
    "word", "business", "issue", "side", "kind", "head", "house", "service", "friend", "father", "power",
    "hour", "game", "line", "end", "member", "law", "car",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn maker(kind: PromptKind, salt: &str, block_size: u32) -> PromptMaker {
        PromptMaker::new(kind, "m\"1".to_owned(), salt, block_size, 2_000, true)
    }

    fn request(line: u32, input_tokens: u32, blocks: Vec<u64>) -> TraceRequest {
        TraceRequest {
            line,
            at: 0.0,
            input_tokens,
            output_tokens: 5,
            blocks,
        }
    }

    fn common<T: PartialEq>(a: &[T], b: &[T]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    proptest! {
        #[test]
        fn prompts_share_their_first_k_blocks_exactly_when_their_first_k_ids_are_equal(
            a in proptest::collection::vec(0u64..3, 1..6),
            b in proptest::collection::vec(0u64..3, 1..6),
            block_size in prop_oneof![Just(16u32), Just(512)],
        ) {
            let maker = maker(PromptKind::Tokens, "", block_size);
            let tokens = |line, ids: &Vec<u64>| -> Vec<u32> {
                maker.tokens(&request(line, ids.len() as u32 * block_size, ids.clone())).collect()
            };
            let (left, right) = (tokens(1, &a), tokens(2, &b));
            prop_assert_eq!(left.len(), a.len() * block_size as usize);
            prop_assert_eq!(common(&left, &right) / block_size as usize, common(&a, &b));
            prop_assert!(left.iter().all(|t| (100..2_000).contains(t)));
        }
    }

    #[test]
    fn a_partial_last_block_is_the_start_of_the_whole_one() {
        let maker = maker(PromptKind::Tokens, "", 512);
        let whole: Vec<u32> = maker.tokens(&request(1, 1_024, vec![4, 9])).collect();
        let partial: Vec<u32> = maker.tokens(&request(2, 700, vec![4, 9])).collect();
        assert_eq!(partial, whole[..700]);
    }

    #[test]
    fn a_tail_without_an_id_is_the_requests_own() {
        let maker = maker(PromptKind::Tokens, "", 512);
        let tokens = |line| -> Vec<u32> { maker.tokens(&request(line, 600, vec![4])).collect() };
        assert_eq!(common(&tokens(1), &tokens(2)), 512);
        assert_eq!(tokens(1), tokens(1));
    }

    #[test]
    fn runs_with_different_salts_share_nothing() {
        let tokens = |salt| -> Vec<u32> {
            maker(PromptKind::Tokens, salt, 512)
                .tokens(&request(1, 512, vec![4]))
                .collect()
        };
        assert!(common(&tokens("a"), &tokens("b")) < 16);
    }

    #[test]
    fn bodies_are_json_that_asks_for_the_traces_length() {
        let value = |kind| -> serde_json::Value {
            serde_json::from_slice(&maker(kind, "", 16).body(&request(1, 20, vec![1, 2]), 7)).unwrap()
        };
        let tokens = value(PromptKind::Tokens);
        assert_eq!(tokens["prompt"].as_array().unwrap().len(), 20);
        let text = value(PromptKind::Text);
        assert_eq!(
            text["messages"][0]["content"]
                .as_str()
                .unwrap()
                .split_whitespace()
                .count(),
            20
        );
        for body in [tokens, text] {
            assert_eq!(body["model"], "m\"1");
            assert_eq!(body["max_tokens"], 7);
            assert_eq!(
                (&body["stream"], &body["ignore_eos"]),
                (&json!(true), &json!(true))
            );
            assert_eq!(body["stream_options"]["include_usage"], true);
        }
    }
}
