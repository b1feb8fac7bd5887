//! How long an answer is, told by the blocks that its engine stores after the prompt's.

use lmetric_prefix::BlockKey;
use lmetric_scheduler::{Outcome, Prompt, ReservationId};

use crate::bench::{Bench, at, keys, text};

/// A request on an engine that decodes.
struct Decoding {
    id: ReservationId,
    endpoint: usize,
    prompt: Prompt,
    /// Its decoded blocks are told apart by this.
    seed: u64,
    generated: u32,
    last: BlockKey,
}

impl Decoding {
    fn begin(bench: &mut Bench, endpoint: usize, tokens: &[u32], seed: u64) -> Self {
        let prompt = bench.prompt(tokens);
        let pick = bench.pick_on(endpoint, &prompt, at(0.0));
        assert!(bench.scheduler.follow_answer(pick.reservation));
        let chain = &prompt.chains[0].1;
        let last = chain.keys.last().copied().unwrap_or(chain.root);
        Self {
            id: pick.reservation,
            endpoint,
            prompt,
            seed,
            generated: 0,
            last,
        }
    }

    fn prefill(&self, bench: &Bench) {
        let blocks = keys(&self.prompt).len();
        bench.store(self.endpoint, &self.prompt, 0, blocks, at(1.0));
    }

    /// One more token comes out; the one before it is computed now.
    fn decode(&mut self, bench: &Bench) {
        self.generated += 1;
        let computed = self.prompt.tokens + self.generated - 1;
        if computed.is_multiple_of(bench.block) && computed > self.prompt.tokens {
            let key = BlockKey::from_raw(self.seed << 32 | u64::from(computed));
            let parent = std::mem::replace(&mut self.last, key);
            let slot = bench.ids[self.endpoint].slot;
            bench.index.write().insert(slot, key);
            bench.scheduler.stored(slot, &[(parent, key)], at(2.0));
        }
    }

    fn end(&self, bench: &Bench) -> Option<u32> {
        bench.end(self.id, at(3.0));
        bench.scheduler.answer_tokens(self.id)
    }
}

#[test]
fn the_estimate_is_half_a_block_off_at_most() {
    let mut bench = Bench::plain(1, 16);
    for length in 1..50 {
        for output in 1..60 {
            let seed = u64::from(length * 100 + output);
            let mut request = Decoding::begin(&mut bench, 0, &text(seed as u32, length as usize), seed);
            request.prefill(&bench);
            (0..output).for_each(|_| request.decode(&bench));
            let told = request.end(&bench).unwrap();
            assert!(told.abs_diff(output) <= 8, "{length} + {output}: {told}");
            assert_eq!(bench.scheduler.answer_tokens(request.id), None, "asked once");
        }
    }
}

#[test]
fn prompts_that_end_alike_are_told_apart_by_their_first_blocks() {
    let mut bench = Bench::plain(1, 16);
    let tokens = text(1, 40);
    let mut requests: Vec<Decoding> = (0..3)
        .map(|number| Decoding::begin(&mut bench, 0, &tokens, number + 1))
        .collect();
    requests[0].prefill(&bench);
    for round in 0..200 {
        for (request, output) in requests.iter_mut().zip([200, 120, 30]) {
            if round < output {
                request.decode(&bench);
            }
        }
    }
    let told: Vec<u32> = requests.iter().map(|one| one.end(&bench).unwrap()).collect();
    for (told, output) in told.iter().zip([200_u32, 120, 30]) {
        assert!(told.abs_diff(output) <= 8, "{told} for {output}");
    }
}

#[test]
fn blocks_of_another_prompt_are_no_answer() {
    let mut bench = Bench::plain(1, 16);
    let tokens = text(1, 64);
    let mut short = Decoding::begin(&mut bench, 0, &tokens, 1);
    short.prefill(&bench);
    let long = [tokens, text(2, 160)].concat();
    let long = Decoding::begin(&mut bench, 0, &long, 2);
    long.prefill(&bench);
    (0..5).for_each(|_| short.decode(&bench));
    let told = short.end(&bench).unwrap();
    assert!(told.abs_diff(5) <= 8, "{told}");
}

#[test]
fn events_may_come_after_the_end() {
    let mut bench = Bench::plain(1, 16);
    let mut request = Decoding::begin(&mut bench, 0, &text(1, 64), 1);
    request.prefill(&bench);
    bench.end(request.id, at(2.0));
    (0..100).for_each(|_| request.decode(&bench));
    let told = bench.scheduler.answer_tokens(request.id).unwrap();
    assert!(told.abs_diff(100) <= 8, "{told}");
}

#[test]
fn what_nobody_can_know_is_not_told() {
    let mut bench = Bench::plain(2, 16);
    let begin = |bench: &mut Bench, endpoint| {
        let request = Decoding::begin(bench, endpoint, &text(1, 64), 1);
        request.prefill(bench);
        request
    };
    let aborted = begin(&mut bench, 0);
    bench.scheduler.release(aborted.id, Outcome::ClientAbort, at(2.0));
    assert_eq!(bench.scheduler.answer_tokens(aborted.id), None);

    let gap = begin(&mut bench, 0);
    bench.scheduler.set_source_live(bench.ids[0], false, at(2.0));
    assert_eq!(gap.end(&bench), None);
    let prompt = bench.prompt(&text(2, 64));
    let pick = bench.pick_on(0, &prompt, at(2.0));
    assert!(!bench.scheduler.follow_answer(pick.reservation), "no live events");

    let restarted = begin(&mut bench, 1);
    bench.scheduler.restarted(bench.ids[1], at(2.0));
    assert_eq!(restarted.end(&bench), None);
    let gone = begin(&mut bench, 1);
    bench.scheduler.remove(bench.ids[1], at(2.0));
    assert_eq!(gone.end(&bench), None);
}

#[test]
fn an_answer_that_was_moved_is_counted_where_it_went() {
    let mut bench = Bench::plain(2, 16);
    let mut request = Decoding::begin(&mut bench, 0, &text(1, 64), 1);
    let there = bench.views(at(0.0))[1].address;
    bench.scheduler.served_by(request.id, there, at(0.5));
    request.endpoint = 1;
    request.prefill(&bench);
    (0..50).for_each(|_| request.decode(&bench));
    let told = request.end(&bench).unwrap();
    assert!(told.abs_diff(50) <= 8, "{told}");

    let lost = Decoding::begin(&mut bench, 0, &text(2, 64), 2);
    bench
        .scheduler
        .served_by(lost.id, ([10, 9, 9, 9], 1).into(), at(1.0));
    assert_eq!(lost.end(&bench), None, "nobody hears of that engine");
}
