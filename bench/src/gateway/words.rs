//! Text that a tokenizer has as much to do with as with a person's: words of its own vocabulary, few of them often and most of them
//! rarely (Zipf's law), some of several tokens, sentences, paragraphs.

use anyhow::{Context, ensure};
use lmetric_tokenize::ModelTokenizer;

use crate::workload::Numbers;

/// Fewer words make no text.
const FEWEST: usize = 500;
/// Words of the text that the tokens per word are counted on.
const SAMPLE: usize = 4_000;

/// A vocabulary, and how long its words are.
#[derive(Debug)]
pub struct Words {
    /// The most frequent first, as byte-pair merges were learnt in that order.
    words: Vec<String>,
    tokens_per_word: f64,
}

impl Words {
    /// Those words of a tokenizer that are one token each: a space and small letters.
    pub fn of(tokenizer: &ModelTokenizer) -> anyhow::Result<Self> {
        let mut words = Vec::new();
        for id in 0..tokenizer.vocabulary() {
            // some ids are bytes, or nothing
            let Ok(text) = tokenizer.decode(&[id]) else {
                continue;
            };
            if let Some(word) = text.strip_prefix(' ')
                && word.len() > 1
                && word.bytes().all(|letter| letter.is_ascii_lowercase())
            {
                words.push(word.to_owned());
            }
        }
        ensure!(
            words.len() >= FEWEST,
            "the tokenizer has {} words, too few for a text; give a real model's (scripts/bench-tokenizer.sh gets one)",
            words.len()
        );
        let mut words = Self {
            words,
            tokens_per_word: 1.0,
        };
        let sample = words.text(&mut Numbers(1), SAMPLE);
        let tokens = tokenizer.encode_text(&sample, false).context("a sample text")?;
        words.tokens_per_word = tokens.ids.len() as f64 / SAMPLE as f64;
        Ok(words)
    }

    /// About so many tokens of text. It begins with a letter.
    pub fn text(&self, numbers: &mut Numbers, tokens: usize) -> String {
        let count = ((tokens as f64 / self.tokens_per_word) as usize).max(1);
        let mut text = String::with_capacity(count * 6);
        for number in 0..count {
            if number > 0 {
                text.push_str(between(numbers));
            }
            text.push_str(self.word(numbers));
            if numbers.below(10) == 0 {
                text.push_str(self.word(numbers));
            }
        }
        text
    }

    /// The word of rank r comes with a chance of 1/r: the logarithm of its rank is uniform.
    fn word(&self, numbers: &mut Numbers) -> &str {
        let uniform = (numbers.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = ((self.words.len() as f64).ln() * uniform).exp() as usize;
        &self.words[rank.clamp(1, self.words.len()) - 1]
    }
}

fn between(numbers: &mut Numbers) -> &'static str {
    match numbers.below(120) {
        0 => ".\n\n",
        1..=9 => ". ",
        10..=16 => ", ",
        _ => " ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words {
            words: (0..1_000).map(|n| format!("w{n}")).collect(),
            tokens_per_word: 2.0,
        }
    }

    #[test]
    fn a_text_has_about_as_many_tokens_as_were_asked_for() {
        let text = words().text(&mut Numbers(3), 2_000);
        let count = text.split_ascii_whitespace().count();
        assert_eq!(count, 1_000);
        assert!(text.starts_with('w'));
    }

    #[test]
    fn frequent_words_are_few() {
        let words = words();
        let mut numbers = Numbers(5);
        let draws: Vec<&str> = (0..10_000).map(|_| words.word(&mut numbers)).collect();
        let first = draws.iter().filter(|word| **word == "w0").count();
        let rare = draws.iter().filter(|word| word.len() == 4).count();
        assert!((500..2_000).contains(&first), "{first}");
        assert!((2_000..5_000).contains(&rare), "{rare}");
    }
}
