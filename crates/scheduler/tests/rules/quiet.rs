//! Light mode: no output is seen, engines store a block only every 128 tokens, and still Q goes to zero.

use std::collections::{HashSet, VecDeque};

use lmetric_prefix::BlockKey;
use lmetric_scheduler::Prompt;

use crate::bench::{Bench, at, keys, pairs, text};

const BLOCK: usize = 128;
const STEP: f64 = 0.02;

struct Running {
    prompt: Prompt,
    /// Tokens hit or computed.
    done: usize,
    started: bool,
    parent: Option<BlockKey>,
}

/// One engine: a queue, a token budget per step, a prefix cache; decoding requests make a token per step.
struct Engine {
    number: usize,
    /// Tokens prefilled per step.
    budget: usize,
    cache: HashSet<BlockKey>,
    queue: VecDeque<Running>,
    decoding: Vec<Running>,
    made: u64,
}

impl Engine {
    fn step(&mut self, bench: &Bench, now: f64) {
        for one in &mut self.decoding {
            one.done += 1;
            if one.done % BLOCK == 0 {
                self.made += 1;
                let key = BlockKey::from_raw(self.made << 8 | self.number as u64);
                let parent = one.parent.replace(key).unwrap_or(one.prompt.chains[0].1.root);
                bench.index.write().insert(bench.ids[self.number].slot, key);
                bench
                    .scheduler
                    .stored(bench.ids[self.number].slot, &[(parent, key)], at(now));
            }
        }
        let mut left = self.budget;
        while left > 0
            && let Some(first) = self.queue.front_mut()
        {
            let length = first.prompt.tokens as usize;
            let blocks = keys(&first.prompt);
            if !first.started {
                first.started = true;
                let run = blocks.iter().take_while(|key| self.cache.contains(key)).count();
                first.done = run.min((length - 1) / BLOCK) * BLOCK;
            }
            let (from, to) = (first.done / BLOCK, (first.done + left).min(length) / BLOCK);
            let step = left.min(length - first.done);
            left -= step;
            first.done += step;
            self.cache.extend(&blocks[from..to]);
            if to > from {
                bench.index_only(self.number, &first.prompt, from, to);
                let stored = pairs(&first.prompt, from, to);
                bench
                    .scheduler
                    .stored(bench.ids[self.number].slot, &stored, at(now));
            }
            if first.done == length {
                first.parent = blocks.last().copied();
                self.decoding.extend(self.queue.pop_front());
            }
        }
    }
}

/// Runs 64 requests to where all decode; returns the seconds from the last prefill until ΣQ = 0.
fn until_quiet(engines: usize, tokens_per_second: f64, arrivals_per_second: f64) -> f64 {
    let mut bench = Bench::plain(engines as u16, BLOCK as u32);
    let mut fleet: Vec<Engine> = (0..engines)
        .map(|number| Engine {
            number,
            budget: (tokens_per_second * STEP) as usize,
            cache: HashSet::new(),
            queue: VecDeque::new(),
            decoding: Vec::new(),
            made: 0,
        })
        .collect();
    let system = text(1, 300);
    let mut placed = 0;
    let mut last_prefill = 0.0;
    for step in 0.. {
        let now = f64::from(step) * STEP;
        while placed < 64 && f64::from(placed) / arrivals_per_second <= now {
            // shorter than a block, whole blocks, repeated prompts (full hits), shared prefixes with tails
            let tokens = match placed % 5 {
                0 => text(1_000 + placed, 60),
                1 => text(2_000 + placed % 3, 1_024),
                2 => text(3_000 + placed % 2, 1_000),
                3 => [system.clone(), text(4_000 + placed, 37)].concat(),
                _ => text(5_000 + placed, 1_700),
            };
            let prompt = bench.prompt(&tokens);
            let pick = bench.pick(&prompt, at(now));
            let engine = bench.ids.iter().position(|id| *id == pick.endpoint).unwrap();
            let running = Running {
                prompt,
                done: 0,
                started: false,
                parent: None,
            };
            fleet[engine].queue.push_back(running);
            placed += 1;
        }
        for engine in &mut fleet {
            engine.step(&bench, now);
        }
        let decoding: usize = fleet.iter().map(|engine| engine.decoding.len()).sum();
        if decoding < 64 {
            last_prefill = now;
            continue;
        }
        let left: u64 = bench.views(at(now)).iter().map(|view| view.q).sum();
        if left == 0 || now > last_prefill + 60.0 {
            assert_eq!(bench.scheduler.open(), 64);
            return now - last_prefill;
        }
    }
    unreachable!()
}

#[test]
fn q_is_zero_within_a_second_of_the_last_prefill() {
    for engines in [1, 4, 16] {
        for rate in [2_000.0, 9_200.0, 18_000.0, 60_000.0] {
            for arrivals in [8.0, 64.0, 10_000.0] {
                let seconds = until_quiet(engines, rate, arrivals);
                println!("{engines} engines, {rate} tokens/s, {arrivals} requests/s: {seconds:.2} s");
                assert!(
                    seconds <= 1.0,
                    "{engines} engines, {rate} tokens/s, {arrivals} requests/s: {seconds} s"
                );
            }
        }
    }
}
