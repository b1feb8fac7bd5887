//! Fuzzes without coverage, for a compiler that cannot count it:
//! `cargo run -p lmetric-fuzz --example blind -- TARGET SECONDS [SEED]`. An input that breaks a rule, or takes longer than
//! two seconds, is written to `fuzz/artifacts/TARGET`.

use std::{
    fs,
    panic::catch_unwind,
    time::{Duration, Instant},
};

use lmetric_fuzz::{TARGETS, Target, folders};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

const SLOW: Duration = Duration::from_secs(2);
const LONGEST: usize = 16 << 10;
/// More findings of one run would be the same ones.
const ENOUGH: usize = 20;

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let usage = || std::io::Error::other("give a target and seconds");
    let name = words.next().ok_or_else(usage)?;
    let seconds = words
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(usage)?;
    let seed = words.next().and_then(|word| word.parse().ok()).unwrap_or(1);
    let target = TARGETS.into_iter().find(|target| target.name == name);
    fuzz(target.ok_or_else(usage)?, Duration::from_secs(seconds), seed)
}

fn fuzz(target: Target, time: Duration, seed: u64) -> std::io::Result<()> {
    let read = |path| fs::read(path);
    let corpus: Vec<Vec<u8>> = folders::files(&folders::corpus(target.name))
        .into_iter()
        .map(read)
        .collect::<Result<_, _>>()?;
    let words = words(target.name);
    let artifacts = folders::fuzz().join("artifacts").join(target.name);
    fs::create_dir_all(&artifacts)?;
    let mut random = SmallRng::seed_from_u64(seed);
    let (start, mut runs, mut found) = (Instant::now(), 0_u64, 0);
    while start.elapsed() < time && found < ENOUGH {
        let mut input = corpus[random.random_range(0..corpus.len())].clone();
        for _ in 0..random.random_range(1..8) {
            change(&mut input, &corpus, &words, &mut random);
        }
        input.truncate(LONGEST);
        let began = Instant::now();
        let broken = catch_unwind(|| (target.run)(&input)).is_err();
        runs += 1;
        if broken || began.elapsed() > SLOW {
            found += 1;
            fs::write(artifacts.join(format!("blind-{seed}-{runs}")), &input)?;
        }
    }
    eprintln!("{}: {runs} inputs, {found} found", target.name);
    Ok(())
}

/// Entries of the target's dictionary.
fn words(target: &str) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(folders::fuzz().join("dictionaries").join(target)).unwrap_or_default();
    let quoted = text
        .lines()
        .filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(unescape).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, later @ ..] = rest {
        rest = later;
        match (first, later) {
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low].map(|digit| (digit as char).to_digit(16).unwrap_or(0) as u8);
                out.push(digits[0] << 4 | digits[1]);
                rest = after;
            }
            (b'\\', [escaped, after @ ..]) => {
                out.push(*escaped);
                rest = after;
            }
            _ => out.push(*first),
        }
    }
    out
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[Vec<u8>], random: &mut SmallRng) {
    let at = random.random_range(0..=input.len());
    let end = (at + random.random_range(1..32)).min(input.len());
    match random.random_range(0..8) {
        0 if at < input.len() => input[at] = random.random(),
        1 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
        2 => drop(input.drain(at..end)),
        3 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        4 | 5 if !words.is_empty() => {
            let word = words[random.random_range(0..words.len())].clone();
            input.splice(at..end.min(at + random.random_range(0..=word.len())), word);
        }
        6 => {
            let other = &corpus[random.random_range(0..corpus.len())];
            let from = random.random_range(0..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            let part: Vec<u8> = (0..random.random_range(1..6)).map(|_| random.random()).collect();
            input.splice(at..at, part);
        }
    }
}
