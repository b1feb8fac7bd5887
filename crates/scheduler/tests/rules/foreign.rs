//! Load that is not ours, seen through scrapes of engines that lag behind us.

use std::{cmp::Reverse, collections::BinaryHeap};

use lmetric_scheduler::{Outcome, ReservationId, ScrapeSample, Time};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::bench::{Bench, text};

const ENGINES: usize = 16;
const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    /// The engine ends a step: only now it takes requests in, lets them go and counts.
    Boundary(usize),
    /// A request reaches the engine.
    Reach(usize, u64),
    /// The engine is told that nobody wants the answer any more.
    Abort(usize, u64),
    /// We see the request end.
    End(ReservationId, bool),
    ScrapeSent(usize),
    /// The engine reads its own figures.
    ScrapeRead(usize, u64),
    ScrapeBack(usize, ScrapeSample),
    Bypass(usize, u32),
}

#[derive(Clone, Copy, Debug)]
struct Inside {
    id: ReservationId,
    number: u64,
    done_at: u64,
    counted: bool,
    aborted: bool,
}

/// Engines that count only between steps of up to 900 ms.
struct Model {
    bench: Bench,
    rng: SmallRng,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    inside: [Vec<Inside>; ENGINES],
    running: [u32; ENGINES],
    bypassing: [u32; ENGINES],
    scrapes: [u32; ENGINES],
    arrivals_until: u64,
    /// The most foreign requests ever seen on each engine.
    seen: [u64; ENGINES],
    number: u32,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut model = Self {
            bench: Bench::plain(ENGINES as u16, 16),
            rng: SmallRng::seed_from_u64(seed),
            events: BinaryHeap::new(),
            inside: Default::default(),
            running: [0; ENGINES],
            bypassing: [0; ENGINES],
            scrapes: [0; ENGINES],
            arrivals_until: 0,
            seen: [0; ENGINES],
            number: 0,
        };
        for engine in 0..ENGINES {
            let first = model.rng.random_range(0..1_000 * MS);
            model.push(first, Event::ScrapeSent(engine));
            model.push(first / 10, Event::Boundary(engine));
        }
        model
    }

    fn push(&mut self, at: u64, event: Event) {
        self.events.push(Reverse((at, event)));
    }

    fn run_until(&mut self, end: u64, mut look: impl FnMut(&Self)) {
        while self.events.peek().is_some_and(|Reverse((at, _))| *at <= end) {
            let Some(Reverse((now, event))) = self.events.pop() else {
                return;
            };
            self.handle(now, event);
            if matches!(event, Event::ScrapeBack(..)) {
                look(self);
            }
        }
    }

    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::Arrive => {
                self.arrive(now, None);
                let gap = -(1.0 - self.rng.random::<f64>()).ln() * 10.0 * MS as f64;
                if now < self.arrivals_until {
                    self.push(now + gap as u64, Event::Arrive);
                }
            }
            Event::Boundary(engine) => self.end_step(engine, now),
            Event::Reach(engine, number) => {
                for one in &mut self.inside[engine] {
                    one.counted |= one.number == number;
                }
            }
            Event::Abort(engine, number) => {
                for one in &mut self.inside[engine] {
                    one.aborted |= one.number == number;
                }
            }
            Event::End(id, abort) => {
                let outcome = if abort {
                    Outcome::ClientAbort
                } else {
                    Outcome::Done
                };
                self.bench.scheduler.release(id, outcome, Time(now));
            }
            Event::ScrapeSent(engine) => {
                let delay = self.rng.random_range(1..400) * MS;
                self.push(now + delay, Event::ScrapeRead(engine, now));
                let next = self.rng.random_range(900..1_100) * MS;
                self.push(now + next, Event::ScrapeSent(engine));
            }
            Event::ScrapeRead(engine, sent) => {
                let sample = ScrapeSample {
                    sent: Time(sent),
                    running: self.running[engine],
                    waiting: 0,
                };
                let delay = self.rng.random_range(1..200) * MS;
                self.push(now + delay, Event::ScrapeBack(engine, sample));
            }
            Event::ScrapeBack(engine, sample) => {
                self.bench
                    .scheduler
                    .scraped(self.bench.ids[engine], sample, Time(now));
                self.scrapes[engine] += 1;
                for (engine, view) in self.bench.views(Time(now)).iter().enumerate() {
                    self.seen[engine] = self.seen[engine].max(view.foreign_bs);
                }
            }
            Event::Bypass(engine, count) => self.bypassing[engine] += count,
        }
    }

    fn end_step(&mut self, engine: usize, now: u64) {
        let (gone, stays): (Vec<Inside>, Vec<Inside>) = self.inside[engine]
            .iter()
            .partition(|one| one.counted && (one.aborted || one.done_at <= now));
        self.inside[engine] = stays;
        let counted = self.inside[engine].iter().filter(|one| one.counted).count();
        self.running[engine] = counted as u32 + self.bypassing[engine];
        for one in gone.iter().filter(|one| !one.aborted) {
            let seen = now + self.rng.random_range(1..10) * MS;
            self.push(seen, Event::End(one.id, false));
        }
        // one step in ten prefills a whole chunk
        let long = self.rng.random_bool(0.1);
        let step = if long { 300..900 } else { 20..60 };
        let next = now + self.rng.random_range(step) * MS;
        self.push(next, Event::Boundary(engine));
    }

    /// One own request; it lasts `millis`, or up to eight seconds; one in four is aborted meanwhile.
    fn arrive(&mut self, now: u64, millis: Option<u64>) {
        self.number += 1;
        let prompt = self.bench.prompt(&text(self.number, 100));
        let pick = self.bench.pick(&prompt, Time(now));
        let engine = self.bench.ids.iter().position(|id| *id == pick.endpoint).unwrap();
        let lasts = millis.unwrap_or_else(|| self.rng.random_range(50..8_000)) * MS;
        let number = u64::from(self.number);
        let abort = millis.is_none() && self.rng.random_bool(0.25);
        self.inside[engine].push(Inside {
            id: pick.reservation,
            number,
            done_at: if abort { u64::MAX } else { now + lasts },
            counted: false,
            aborted: false,
        });
        let reach = self.rng.random_range(1..30) * MS;
        self.push(now + reach, Event::Reach(engine, number));
        if abort {
            let end = now + lasts.max(40 * MS);
            self.push(end, Event::End(pick.reservation, true));
            let told = self.rng.random_range(1..30) * MS;
            self.push(end + told, Event::Abort(engine, number));
        }
    }
}

#[test]
fn foreign_load_is_zero_throughout_a_churning_minute() {
    for seed in 0..8 {
        let mut model = Model::new(seed);
        model.arrivals_until = 60_000 * MS;
        model.push(0, Event::Arrive);
        model.run_until(60_000 * MS, |model| {
            assert!(model.seen.iter().all(|seen| *seen == 0), "{:?}", model.seen);
        });
        assert!(model.number > 5_500, "{} requests", model.number);
        assert!(model.scrapes.iter().all(|scrapes| *scrapes > 50));
    }
}

#[test]
fn bypassing_requests_are_seen_within_four_scrapes() {
    let mut model = Model::new(7);
    for _ in 0..200 {
        model.arrive(0, Some(60_000));
    }
    model.run_until(5_000 * MS, |_| {});
    assert_eq!(model.seen, [0; ENGINES]);
    let before = model.scrapes;
    let mut all: u64 = 0;
    for (engine, count) in [(3, 20), (5, 12), (6, 8)] {
        model.push(5_001 * MS, Event::Bypass(engine, count));
        all += u64::from(count);
    }
    let mut after_four: [Option<u64>; ENGINES] = [None; ENGINES];
    model.run_until(15_000 * MS, |model| {
        for engine in 0..ENGINES {
            if model.scrapes[engine] == before[engine] + 4 {
                after_four[engine].get_or_insert(model.seen[engine]);
            }
        }
    });
    let after_four = after_four.map(|seen| seen.unwrap());
    let seen: u64 = [3, 5, 6].iter().map(|engine| after_four[*engine]).sum();
    println!(
        "{seen} of {all} bypassing requests seen within four scrapes, 20 of them on one engine: {}",
        after_four[3]
    );
    assert!(after_four[3] >= 18);
    assert!(seen * 10 >= all * 9);
    assert!(
        (0..ENGINES)
            .filter(|engine| ![3, 5, 6].contains(engine))
            .all(|engine| model.seen[engine] == 0)
    );
}

#[test]
fn foreign_load_counts_in_the_score() {
    let mut bench = Bench::plain(2, 16);
    let prompt = bench.prompt(&text(1, 100));
    let warm = bench.pick_on(1, &prompt, Time(0));
    bench.end(warm.reservation, Time(0));
    for second in 2..5 {
        let sent = Time(second * 1_000 * MS);
        let sample = ScrapeSample {
            sent,
            running: 3,
            waiting: 2,
        };
        bench.scheduler.scraped(bench.ids[0], sample, sent);
        assert_eq!(bench.views(sent)[0].foreign_bs, if second < 4 { 0 } else { 5 });
    }
    let now = Time(5_000 * MS);
    let view = &bench.views(now)[0];
    // two foreign requests wait; our mean uncached prompt is 100 tokens
    assert_eq!((view.foreign_bs, view.foreign_q, view.bs, view.q), (5, 200, 0, 0));
    assert_eq!(bench.pick(&prompt, now).endpoint, bench.ids[1]);
    let decision = &bench.scheduler.decisions(1)[0];
    // (200 + 100) × (5 + 1)
    assert_eq!(decision.candidates[1].1.score, 1_800.0);
    for _ in 0..3 {
        bench.scheduler.scrape_failed(bench.ids[0], false, now);
    }
    assert_eq!(bench.views(now)[0].foreign_bs, 0);
}
