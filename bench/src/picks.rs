//! What a pick costs: tokens given; hash, look up, score, reserve.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lmetric_prefix::TokenId;
use lmetric_scheduler::{Outcome, ReservationId, Time};
use rand::{SeedableRng, rngs::SmallRng};

use crate::{
    fleet::{Feed, Fleet},
    ingest,
    results::Figure,
    workload::{Numbers, Workload},
};

/// Requests in flight while a pick is measured.
const IN_FLIGHT: usize = 512;
/// Model time between two picks.
const APART: f64 = 0.005;

/// Requests that are open, the oldest first.
struct InFlight {
    open: VecDeque<ReservationId>,
    picks: u64,
}

impl InFlight {
    fn new() -> Self {
        Self {
            open: VecDeque::with_capacity(IN_FLIGHT + 1),
            picks: 0,
        }
    }

    fn now(&self) -> Time {
        Time::from_secs_f64(self.picks as f64 * APART)
    }

    /// One more; the one before begins to answer, the oldest ends.
    fn add(&mut self, fleet: &Fleet, id: ReservationId) {
        let now = self.now();
        if let Some(last) = self.open.back() {
            fleet.scheduler.first_output(*last, now);
        }
        self.open.push_back(id);
        self.picks += 1;
        if self.open.len() > IN_FLIGHT
            && let Some(oldest) = self.open.pop_front()
        {
            fleet.scheduler.release(oldest, Outcome::Done, now);
        }
    }

    fn end(self, fleet: &Fleet) {
        let now = self.now();
        for id in self.open {
            fleet.scheduler.release(id, Outcome::Done, now);
        }
    }
}

/// Times of `count` picks of prompts of `length` tokens, a conversation's beginning each.
pub fn times(fleet: &Fleet, workload: &Workload, length: usize, count: usize, seed: u64) -> Vec<u64> {
    let prompts: Vec<&[TokenId]> = workload
        .conversations
        .iter()
        .filter_map(|conversation| conversation.tokens.get(..length))
        .collect();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut numbers = Numbers(seed);
    let mut flight = InFlight::new();
    let mut times = Vec::with_capacity(count);
    for number in 0..count + IN_FLIGHT {
        let prompt = prompts[numbers.below(prompts.len() as u64) as usize];
        let started = Instant::now();
        let pick = fleet.pick(prompt, flight.now(), &mut rng);
        let took = started.elapsed();
        if number >= IN_FLIGHT {
            times.push(took.as_nanos() as u64);
        }
        flight.add(fleet, pick.reservation);
    }
    flight.end(fleet);
    times
}

/// Picks in a second on two threads while `blocks_per_s` blocks come in on a third.
pub fn rate(
    fleet: &Arc<Fleet>,
    workload: &Arc<Workload>,
    length: usize,
    lasts: Duration,
    blocks_per_s: u64,
) -> (f64, f64) {
    let over = Arc::new(AtomicBool::new(false));
    let picks = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let pickers: Vec<_> = (0..2_u64)
        .map(|number| {
            let (fleet, workload, over, picks) =
                (fleet.clone(), workload.clone(), over.clone(), picks.clone());
            std::thread::spawn(move || {
                let mut rng = SmallRng::seed_from_u64(number);
                let mut numbers = Numbers(number);
                let mut flight = InFlight::new();
                while !over.load(Ordering::Relaxed) {
                    let at = numbers.below(workload.conversations.len() as u64) as usize;
                    let prompt = &workload.conversations[at].tokens[..length];
                    let pick = fleet.pick(prompt, flight.now(), &mut rng);
                    flight.add(&fleet, pick.reservation);
                    picks.fetch_add(1, Ordering::Relaxed);
                }
                flight.end(&fleet);
            })
        })
        .collect();
    let feeding = {
        let (fleet, over) = (fleet.clone(), over.clone());
        std::thread::spawn(move || ingest::pace(&fleet, blocks_per_s, &over))
    };
    std::thread::sleep(lasts);
    over.store(true, Ordering::Relaxed);
    let seconds = started.elapsed().as_secs_f64();
    for picker in pickers {
        picker.join().expect("a picking thread ended well");
    }
    let blocks = feeding.join().expect("the feeding thread ended well");
    (
        picks.load(Ordering::Relaxed) as f64 / seconds,
        blocks as f64 / seconds,
    )
}

/// `pick/8k/64` and its like, over a fleet that holds the workload.
pub fn figure(fleet: &Fleet, workload: &Workload, name: &str, length: usize, runs: usize) -> Figure {
    let runs = (0..runs as u64)
        .map(|seed| times(fleet, workload, length, 4_000, seed))
        .collect();
    Figure::times(name, runs)
}

/// A fleet that holds a workload, and its sources.
pub fn filled(workload: &Workload, endpoints: u16) -> (Fleet, Vec<Feed>) {
    let fleet = Fleet::new(endpoints);
    let mut feeds: Vec<Feed> = (0..endpoints).map(|_| fleet.source()).collect();
    fleet.fill(workload, &mut feeds);
    (fleet, feeds)
}
