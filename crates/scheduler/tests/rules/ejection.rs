//! Engines that refuse or fail at once do not draw the fleet's requests.

use lmetric_scheduler::{Outcome, PolicyKind, ReservationId, SchedulerConfig, ScrapeSample, Time};

use crate::bench::{Bench, at, text};

const REFUSES: usize = 1;
const ANSWERS_503: usize = 2;
const PER_SECOND: u32 = 50;

struct Run {
    bench: Bench,
    number: u32,
    /// When they end, and which.
    served: Vec<(Time, ReservationId)>,
    errors: u32,
}

impl Run {
    /// One request, and a scrape of every engine once per second.
    fn step(&mut self, broken: bool) -> usize {
        let now = at(f64::from(self.number) / f64::from(PER_SECOND));
        if self.number.is_multiple_of(PER_SECOND) {
            self.scrape(broken, now);
        }
        let scheduler = &self.bench.scheduler;
        self.served.retain(|(end, id)| {
            if *end <= now {
                scheduler.release(*id, Outcome::Done, now);
            }
            *end > now
        });
        self.number += 1;
        let prompt = self.bench.prompt(&text(self.number, 400));
        let pick = self.bench.pick(&prompt, now);
        let engine = self.bench.ids.iter().position(|id| *id == pick.endpoint).unwrap();
        let outcome = match engine {
            REFUSES if broken => Outcome::Unreachable,
            ANSWERS_503 if broken => Outcome::ServerError,
            _ => {
                self.bench.scheduler.status(pick.reservation, 200, now);
                let end = Time(now.0 + 700_000_000);
                self.served.push((end, pick.reservation));
                return engine;
            }
        };
        self.errors += 1;
        self.bench.scheduler.release(pick.reservation, outcome, now);
        engine
    }

    fn scrape(&self, broken: bool, now: Time) {
        for (number, id) in self.bench.ids.iter().enumerate() {
            if broken && number == REFUSES {
                self.bench.scheduler.scrape_failed(*id, true, now);
            } else {
                let bs = self.bench.views(now)[number].bs as u32;
                let sample = ScrapeSample {
                    sent: now,
                    running: bs,
                    waiting: 0,
                };
                self.bench.scheduler.scraped(*id, sample, now);
            }
        }
    }
}

fn run(policy: PolicyKind) -> (u32, f64) {
    let config = SchedulerConfig {
        policy,
        ..SchedulerConfig::default()
    };
    let mut run = Run {
        bench: Bench::new(8, 16, config),
        number: 0,
        served: Vec::new(),
        errors: 0,
    };
    for _ in 0..500 {
        run.step(true);
    }
    let errors = run.errors;
    let recovery = run.number;
    let mut back = [false; 8];
    while !(back[REFUSES] && back[ANSWERS_503]) {
        let engine = run.step(false);
        back[engine] = true;
        assert!(
            run.number < recovery + 60 * PER_SECOND,
            "{policy}: never came back"
        );
    }
    (errors, f64::from(run.number - recovery) / f64::from(PER_SECOND))
}

#[test]
fn one_engine_refuses_and_one_answers_503_at_once() {
    for policy in [
        PolicyKind::LMETRIC,
        PolicyKind::LeastRequest,
        PolicyKind::Vllm,
        PolicyKind::RoundRobin,
    ] {
        let (errors, seconds) = run(policy);
        println!("{policy}: {errors} errors of 500, both back {seconds} s after recovery");
        assert!(errors <= 10, "{policy}: {errors} errors");
        assert!(seconds <= 30.0, "{policy}: {seconds} s");
    }
}

#[test]
fn where_every_engine_fails_requests_are_still_placed() {
    let mut bench = Bench::plain(3, 16);
    let prompt = bench.prompt(&text(1, 100));
    for _ in 0..50 {
        let pick = bench.pick(&prompt, at(0.0));
        bench
            .scheduler
            .release(pick.reservation, Outcome::Unreachable, at(0.0));
    }
    assert_eq!(bench.scheduler.counters().picks, 50);
}

#[test]
fn an_engine_without_a_page_of_metrics_comes_back_after_a_restart() {
    let mut bench = Bench::plain(2, 16);
    let (one, prompt) = (bench.ids[0], bench.prompt(&text(1, 100)));
    for second in [1.0, 2.0] {
        bench.scheduler.scrape_failed(one, true, at(second));
    }
    bench.scheduler.scraped_without_page(one, at(9.0));
    let picks: Vec<_> = (0..2).map(|_| bench.pick(&prompt, at(9.1)).endpoint).collect();
    assert!(picks.contains(&one));
}
