//! Everything at once, one request after the other, in virtual time.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::Context;
use lmetric_epp::clock::Clock;
use lmetric_scheduler::{EndpointView, Outcome, ScrapeSample, Time};
use rand::{SeedableRng, rngs::SmallRng};

use super::{
    Args,
    agenda::{Agenda, Flight, Then},
    prompts::Prompts,
    seat::Seat,
};
use crate::{
    cache::Cache,
    fleet::Fleet,
    workload::{BLOCK, Numbers},
};

const TICKS: Duration = Duration::from_millis(250);
const SCRAPES: Duration = Duration::from_secs(1);
const LEAVES: Duration = Duration::from_secs(10);
const RESTARTS: Duration = Duration::from_secs(15);
const BREAKS: Duration = Duration::from_secs(20);
/// How long an engine that breaks answers with errors.
const BROKEN: Duration = Duration::from_secs(1);

/// Something that happens again and again.
struct Every {
    period: Duration,
    next: Time,
}

impl Every {
    fn new(period: Duration) -> Self {
        Self {
            period,
            next: Time::default().after(period),
        }
    }

    fn is_due(&mut self, now: Time) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now.after(self.period);
        }
        due
    }
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// Requests picked.
    pub picked: u64,
    /// That did not end well.
    pub failed: u64,
    /// Endpoints that left; as many came.
    pub left: u64,
    /// Engines that restarted.
    pub restarted: u64,
    /// Alarms of the hotspot detector.
    pub alarms: u64,
    /// Ejections.
    pub ejections: u64,
}

/// What is not as it was at the beginning, when all is over.
#[derive(Clone, Debug)]
pub struct Left {
    /// Reservations.
    pub open: usize,
    /// Endpoints with Q, BS or blocks that are being filled.
    pub loaded: Vec<EndpointView>,
}

/// The fleet and what goes on in it.
pub struct World {
    fleet: Fleet,
    clock: &'static AtomicU64,
    seats: Vec<Seat>,
    joined: u32,
    prompts: Prompts,
    agenda: Agenda,
    numbers: Numbers,
    rng: SmallRng,
    ticks: Every,
    scrapes: Every,
    leaves: Every,
    restarts: Every,
    breaks: Every,
    scraped: u64,
    told: Told,
}

impl World {
    /// Endpoints that hold nothing.
    pub fn new(args: &Args) -> Self {
        // one word for each world: the product's clock is copied everywhere and may not borrow
        let clock: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        let mut numbers = Numbers(args.seed);
        let mut world = Self {
            fleet: Fleet::empty(Clock::driven(clock)),
            clock,
            seats: Vec::with_capacity(usize::from(args.endpoints)),
            joined: 0,
            prompts: Prompts::new(args.chats, &mut numbers),
            agenda: Agenda::default(),
            numbers,
            rng: SmallRng::seed_from_u64(args.seed),
            ticks: Every::new(TICKS),
            scrapes: Every::new(SCRAPES),
            leaves: Every::new(LEAVES),
            restarts: Every::new(RESTARTS),
            breaks: Every::new(BREAKS),
            scraped: 0,
            told: Told::default(),
        };
        for _ in 0..args.endpoints {
            let seat = world
                .seat(args.blocks)
                .expect("a free slot for each of a thousand");
            world.seats.push(seat);
        }
        world
    }

    /// `step` later another request is picked. Returns how long that took.
    pub fn step(&mut self, step: Duration) -> anyhow::Result<Duration> {
        let now = self.now().after(step);
        self.clock.store(now.0, Ordering::Relaxed);
        while let Some((flight, then)) = self.agenda.next(now) {
            self.happens(flight, then, now);
        }
        self.chores(now)?;
        let asked = self.prompts.next(&mut self.numbers);
        let tokens = &asked.conversation.tokens[..asked.prompt * BLOCK];
        let started = Instant::now();
        let pick = self.fleet.pick(tokens, now, &mut self.rng);
        let took = started.elapsed();
        self.told.picked += 1;
        let seat = self.seats.iter().find(|seat| seat.id == pick.endpoint);
        let flight = Flight {
            reservation: pick.reservation,
            endpoint: pick.endpoint,
            process: seat
                .context("a request went to an endpoint that had left")?
                .process,
            conversation: asked.conversation,
            prompt: asked.prompt,
            answered: asked.answered,
        };
        self.agenda.picked(flight, now, &mut self.numbers);
        Ok(took)
    }

    /// (endpoint, block) pairs that the index holds.
    pub fn held(&self) -> usize {
        self.fleet.index.read().len()
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> usize {
        self.fleet.index.read().heap_bytes()
    }

    /// Reservations that are open.
    pub fn open(&self) -> usize {
        self.fleet.scheduler.open()
    }

    /// What has happened so far.
    pub fn told(&self) -> Told {
        let counters = self.fleet.scheduler.counters();
        Told {
            alarms: counters.alarms,
            ejections: counters.ejections,
            ..self.told
        }
    }

    /// Ends every request that is open. What is left then should not be.
    pub fn end(self) -> Left {
        let now = self.now();
        for flight in self.agenda.rest() {
            self.fleet
                .scheduler
                .release(flight.reservation, Outcome::Done, now);
        }
        let endpoints = self.fleet.scheduler.endpoints(now);
        Left {
            open: self.fleet.scheduler.open(),
            loaded: endpoints
                .into_iter()
                .filter(|view| view.q > 0 || view.bs > 0 || view.optimistic_blocks > 0)
                .collect(),
        }
    }

    fn now(&self) -> Time {
        Time(self.clock.load(Ordering::Relaxed))
    }

    fn seat(&mut self, blocks: usize) -> Option<Seat> {
        let id = self.fleet.join(self.joined)?;
        self.joined += 1;
        Some(Seat {
            id,
            feed: self.fleet.source(),
            cache: Cache::new(blocks).reserved(),
            process: 0,
            broken: Time::default(),
        })
    }

    fn happens(&mut self, flight: Flight, then: Then, now: Time) {
        let scheduler = &self.fleet.scheduler;
        let seat = self
            .seats
            .iter_mut()
            .find(|seat| seat.id == flight.endpoint && seat.process == flight.process);
        let Some(seat) = seat else {
            // nobody is there any more; a reservation that was closed with its endpoint is released in vain
            self.told.failed += 1;
            scheduler.release(flight.reservation, Outcome::Unreachable, now);
            return;
        };
        if now < seat.broken {
            self.told.failed += 1;
            scheduler.release(flight.reservation, Outcome::ServerError, now);
            return;
        }
        match then {
            Then::Begins(goes_on, outcome) => {
                let held = seat.prefill(&self.fleet, &flight);
                scheduler.first_output(flight.reservation, now);
                scheduler.cached_tokens(flight.reservation, (held * BLOCK) as u64);
                let ends = Time(now.0 + goes_on);
                self.agenda.put(ends, flight, Then::Ends(outcome));
            }
            Then::Ends(outcome) => {
                if outcome == Outcome::Done {
                    seat.decode(&self.fleet, &flight);
                } else {
                    self.told.failed += 1;
                }
                scheduler.release(flight.reservation, outcome, now);
            }
        }
    }

    /// What time brings.
    fn chores(&mut self, now: Time) -> anyhow::Result<()> {
        let scheduler = &self.fleet.scheduler;
        if self.ticks.is_due(now) {
            scheduler.tick(now);
            scheduler.take_hit_checks();
            scheduler.take_token_checks();
            scheduler.take_hotspot_notes();
        }
        if self.scrapes.is_due(now) {
            self.scraped += 1;
            let endpoints = scheduler.endpoints(now);
            for seat in &self.seats {
                let view = endpoints.iter().find(|view| view.slot == seat.id.slot.0);
                let own = view.map_or(0, |view| view.bs as u32);
                // once in a while somebody asks an engine past the picker
                let foreign = if (self.scraped + u64::from(seat.id.slot.0)) % 16 < 3 {
                    2
                } else {
                    0
                };
                let sample = ScrapeSample {
                    sent: now,
                    running: own + foreign,
                    waiting: 0,
                };
                scheduler.scraped(seat.id, sample, now);
            }
        }
        let number = self.numbers.below(self.seats.len() as u64) as usize;
        if self.leaves.is_due(now) {
            self.told.left += 1;
            let blocks = self.seats[number].cache.capacity();
            self.fleet.leave(self.seats[number].id, now);
            self.seats[number] = self
                .seat(blocks)
                .context("no slot is free for another endpoint")?;
        }
        if self.breaks.is_due(now) {
            self.seats[number].broken = now.after(BROKEN);
        }
        if self.restarts.is_due(now) {
            self.told.restarted += 1;
            let seat = &mut self.seats[number];
            seat.process += 1;
            seat.cache.clear();
            if self.told.restarted.is_multiple_of(2) {
                seat.feed.restart_silently();
            } else {
                self.fleet.restart(seat.id, &mut seat.feed, now);
            }
        }
        Ok(())
    }
}

impl Left {
    /// All is as it was.
    pub fn is_nothing(&self) -> bool {
        self.open == 0 && self.loaded.is_empty()
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            picked,
            failed,
            left,
            restarted,
            alarms,
            ejections,
        } = self;
        write!(
            f,
            "{picked} requests, {failed} of them failed or given up; {left} endpoints left and as many came; {restarted} engines \
             restarted; {alarms} hotspot alarms, {ejections} ejections"
        )
    }
}
