//! The fast tokenizer against the released one, and the segment cache against no cache.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::{Path, PathBuf};

use lmetric_tokenize::{Encode, ModelTokenizer, Options, Pipeline};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const STRINGS: usize = 20_000;

/// The shipped tokenizer, or one that is checked by hand.
fn dir() -> PathBuf {
    let own = common::testdata("tiny-qwen2");
    std::env::var_os("LMETRIC_TOKENIZER").map_or(own, Into::into)
}

fn json() -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(dir().join("tokenizer.json")).unwrap()).unwrap()
}

/// Texts of every kind that has ever split differently somewhere.
struct Texts {
    rng: StdRng,
    added: Vec<String>,
}

impl Texts {
    fn new(seed: u64) -> Self {
        let added = json()["added_tokens"].as_array().unwrap().clone();
        let added = added
            .iter()
            .map(|token| token["content"].as_str().unwrap().to_owned())
            .collect();
        Self {
            rng: StdRng::seed_from_u64(seed),
            added,
        }
    }

    fn text(&mut self, pieces: usize) -> String {
        let pieces = self.rng.random_range(0..=pieces);
        (0..pieces).map(|_| self.piece()).collect()
    }

    fn piece(&mut self) -> String {
        const WORDS: [&str; 16] = [
            "the",
            "Hello",
            "don't",
            "I'LL",
            "we've",
            "naïve",
            "Straße",
            "fiancée",
            "ΑΒΓ",
            "Привет",
            "İstanbul",
            "ǅ",
            "ﬁne",
            "Ⅷ",
            "x86_64",
            "HTTPServer",
        ];
        const SPACES: [&str; 12] = [
            " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", " \n ", "\u{a0}", "\u{3000}", "\u{2028}", "\u{85}",
        ];
        const CODE: [&str; 10] = [
            "fn main() {\n    let x = 1;\n}\n",
            "if (a&&b) { return -1; }",
            "#include <stdio.h>",
            "a[i+1] = b->c;",
            "\tdef f(self, *args):\n\t\treturn None\n",
            "</div>\n<p class=\"x\">",
            "SELECT * FROM t WHERE a<>'b';",
            "{\"k\": [1, 2.5e-3, null]}",
            "0xDEADBEEF",
            "!= === ... --> :=",
        ];
        const EMOJI: [&str; 8] = ["🙂", "👩‍👩‍👧‍👦", "🇫🇷", "👍🏽", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☕", "1️⃣"];
        let rng = &mut self.rng;
        let pick = |rng: &mut StdRng, list: &[&str]| (*list.choose(rng).unwrap()).to_owned();
        match rng.random_range(0..16) {
            0..=2 => pick(rng, &WORDS),
            3..=4 => pick(rng, &SPACES),
            5 => pick(rng, &CODE),
            6 => pick(rng, &EMOJI),
            // CJK, kana, hangul
            7 => chars(rng, &[0x4e00..0x9fff, 0x3041..0x30ff, 0xac00..0xd7a3], 6),
            // letters with combining marks, in no canonical order
            8 => {
                let base = chars(rng, &[0x61..0x7a, 0x391..0x3c9], 1);
                base + &chars(rng, &[0x300..0x36f, 0x1ab0..0x1abe, 0x20d0..0x20dc], 3)
            }
            // scripts with marks of their own
            9 => chars(rng, &[0x900..0x97f, 0xe01..0xe5b, 0x620..0x64f, 0x5d0..0x5ea], 5),
            10 => chars(rng, &[0x21..0x2f, 0x3a..0x40, 0x2010..0x2027, 0x3001..0x303f], 4),
            11 => chars(
                rng,
                &[0x30..0x39, 0x660..0x669, 0xff10..0xff19, 0x2460..0x2473],
                5,
            ),
            12 => chars(rng, &[0x1..0x1f, 0x7f..0x9f, 0xe000..0xe010, 0xfff0..0xfffd], 2),
            // beyond the basic plane, in blocks that every Unicode table has
            13 => chars(
                rng,
                &[
                    0x1f300..0x1f64f,
                    0x10000..0x100fa,
                    0x1d400..0x1d7ff,
                    0x20000..0x2a6df,
                    0xfe00..0xfe0f,
                    0x200b..0x200f,
                ],
                2,
            ),
            14 => self.added.choose(rng).unwrap().clone(),
            // an added token cut off somewhere
            _ => {
                let token = self.added.choose(rng).unwrap();
                let at = token.floor_char_boundary(rng.random_range(0..=token.len()));
                token[..at].to_owned()
            }
        }
    }
}

fn chars(rng: &mut StdRng, ranges: &[std::ops::Range<u32>], most: usize) -> String {
    let count = rng.random_range(1..=most);
    let one = |rng: &mut StdRng| {
        let range = ranges.choose(rng).unwrap().clone();
        char::from_u32(rng.random_range(range))
    };
    (0..count).filter_map(|_| one(rng)).collect()
}

#[test]
fn the_fast_tokenizer_gives_the_ids_of_the_released_one() {
    let released = tokenizers_023::Tokenizer::from_file(dir().join("tokenizer.json")).unwrap();
    let fast = Pipeline::from_json(json()).unwrap();
    let mut texts = Texts::new(7);
    let (mut bytes, mut with_added) = (0, 0);
    for _ in 0..STRINGS {
        let text = texts.text(12);
        let expected = released.encode_fast(text.as_str(), false).unwrap();
        let mut ids = Vec::new();
        fast.encode(&text, &mut ids).unwrap();
        assert_eq!(ids, expected.get_ids(), "{text:?}");
        bytes += text.len();
        with_added += usize::from(texts.added.iter().any(|token| text.contains(token.as_str())));
    }
    println!("{STRINGS} texts, {bytes} bytes, {with_added} with added tokens: all equal");
    assert!(with_added > STRINGS / 10, "the texts must exercise added tokens");
}

fn conversation(turns: &[String]) -> String {
    turns
        .iter()
        .flat_map(|turn| ["<|im_start|>user\n", turn, "<|im_end|>\n"])
        .collect()
}

/// A conversation that goes on, restarts and shares its beginnings, encoded with and without cache.
fn assert_cache_is_invisible(dir: &Path, cache_bytes: usize, rounds: usize) {
    let json = std::fs::read_to_string(dir.join("tokenizer.json")).unwrap();
    let plain = Pipeline::from_json(serde_json::from_str(&json).unwrap()).unwrap();
    assert!(plain.pieces_are_independent());
    let cached = ModelTokenizer::load_with(
        dir,
        Options {
            cache_bytes,
            ..Options::default()
        },
    )
    .unwrap();
    let mut texts = Texts::new(11);
    let mut turns: Vec<String> = Vec::new();
    for _ in 0..rounds {
        if texts.rng.random_ratio(1, 12) {
            turns.truncate(texts.rng.random_range(0..=turns.len()));
        }
        turns.push(texts.text(12));
        let text = conversation(&turns);
        let mut expected = Vec::new();
        plain.encode(&text, &mut expected).unwrap();
        assert_eq!(
            cached.encode_text(&text, false).unwrap().ids,
            expected,
            "{text:?}"
        );
        assert!(cached.cached_bytes() <= cache_bytes);
    }
    assert!(
        cached.cached_bytes() > cache_bytes / 40,
        "the cache must be in use"
    );
}

#[test]
fn cached_segments_give_the_ids_of_uncached_text() {
    assert_cache_is_invisible(&dir(), 8 << 20, 3_000);
}

#[test]
fn evicting_all_the_time_changes_no_ids() {
    assert_cache_is_invisible(&dir(), 64 << 10, 3_000);
}

/// The shipped tokenizer with other flags on its added tokens, in a folder of its own.
fn flagged(flags: &[&str]) -> tempfile::TempDir {
    let own = common::testdata("tiny-qwen2");
    let mut json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(own.join("tokenizer.json")).unwrap()).unwrap();
    for token in json["added_tokens"].as_array_mut().unwrap() {
        for flag in flags {
            token[*flag] = true.into();
        }
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), json.to_string()).unwrap();
    std::fs::copy(
        own.join("tokenizer_config.json"),
        dir.path().join("tokenizer_config.json"),
    )
    .unwrap();
    dir
}

#[test]
fn added_tokens_that_strip_spaces_leave_the_cache_invisible() {
    for flags in [
        &["lstrip"][..],
        &["rstrip"],
        &["lstrip", "rstrip"],
        &["normalized"],
        &["normalized", "lstrip"],
    ] {
        assert_cache_is_invisible(flagged(flags).path(), 1 << 20, 400);
    }
}

#[test]
fn added_tokens_that_look_at_their_neighbours_switch_the_cache_off() {
    let dir = flagged(&["single_word"]);
    let model = ModelTokenizer::load(dir.path()).unwrap();
    let text = "a long enough text for the cache to keep it, were it on <|im_end|>".repeat(20);
    model.encode_text(&text, false).unwrap();
    assert_eq!(model.cached_bytes(), 0);
}
