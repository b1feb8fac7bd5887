//! One run in virtual time: engines of the model behind the scheduler and the prefix index that route online.
//!
//! A queue of moments, in order of time and then of insertion; nothing reads a clock and the only random numbers are those
//! of the seed, so the same run gives the same bytes. An engine's step is computed when it begins and becomes visible when
//! it ends; its KV events reach the index `event_delay` later (index first, then the ledger, as online), and a scrape's
//! figures reach the scheduler `scrape_delay` after they were read.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use lmetric_engine::{Engine, Event, Output, Request, RequestId, StepOutcome};
use lmetric_prefix::{BlockKey, BlockSize, SharedIndex};
use lmetric_scheduler::{
    EndpointId, EndpointSpec, Outcome, PickRequest, ReservationId, Scheduler, SchedulerConfig, ScrapeSample,
    Time,
};
use rand::{SeedableRng, rngs::SmallRng};

use super::{
    fleet::FleetSpec,
    measure::{Measured, Sample},
    workload::{Prompts, Workload},
};

/// A scrape of an engine that has requests is due this often.
const SCRAPE: u64 = 1_000_000_000;
/// How often the fleet's state is noted.
const SAMPLE: u64 = 1_000_000_000;
/// Moments between two looks at whether a person wants to stop.
const PATIENCE: u32 = 512;

/// How information travels in the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wiring {
    /// From the end of a step to the index.
    pub event_delay: Duration,
    /// From the reading of an engine's figures to the scheduler.
    pub scrape_delay: Duration,
    /// Whether the picker sees answers (and so the first output); else events alone tell of progress.
    pub bodies: bool,
}

/// What a run needs.
pub struct Run<'a> {
    /// Engines.
    pub fleet: &'a FleetSpec,
    /// Requests.
    pub workload: &'a Workload<'a>,
    /// Policy and detector.
    pub scheduler: SchedulerConfig,
    /// Delays.
    pub wiring: Wiring,
    /// Of the scheduler's random numbers.
    pub seed: u64,
    /// Whether the winner's forecast is kept for each request.
    pub keep_forecasts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The step that the engine is in ends.
    StepEnds(u16),
    /// The oldest batch of events of the engine arrives.
    EventsArrive(u16),
    /// The engine's figures are read.
    Scrape(u16),
    /// The oldest figures of the engine arrive.
    FiguresArrive(u16),
    /// The fleet's state is noted.
    Note,
}

/// Changes of one engine's cache, in its order.
#[derive(Debug, Default)]
struct Batch {
    changes: Vec<Change>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Stored { parent: BlockKey, key: BlockKey },
    Removed(BlockKey),
}

struct Machine {
    engine: Engine,
    endpoint: EndpointId,
    stepping: bool,
    outcome: StepOutcome,
    batches: VecDeque<Batch>,
    /// Copies of a block beyond the first.
    copies: HashMap<u64, u32>,
    /// Figures on their way: load, and tokens of KV cache in use.
    figures: VecDeque<(ScrapeSample, u64)>,
    /// Requests assigned and not finished.
    open: u32,
}

struct Open {
    reservation: ReservationId,
    machine: u16,
    first: u64,
}

struct World<'a> {
    run: &'a Run<'a>,
    scheduler: Scheduler,
    index: Arc<SharedIndex>,
    prompts: Prompts,
    machines: Vec<Machine>,
    places: HashMap<EndpointId, u16>,
    open: HashMap<u32, Open>,
    queue: BinaryHeap<Reverse<(u64, u64, What)>>,
    inserted: u64,
    next_job: usize,
    rng: SmallRng,
    measured: Measured,
    spare: Vec<Batch>,
    stored: Vec<(BlockKey, BlockKey)>,
}

/// Runs to the last answer. `progress` is told of finished requests and says whether to go on; `None` when it said no.
pub fn run(run: &Run<'_>, progress: impl Fn(u64) -> bool) -> anyhow::Result<Option<Measured>> {
    let mut world = World::new(run)?;
    let (mut since, mut told) = (0, 0);
    while world.step()? {
        since += 1;
        if since == PATIENCE {
            since = 0;
            let done = world.measured.done();
            if !progress(done - told) {
                return Ok(None);
            }
            told = done;
        }
    }
    progress(world.measured.done() - told);
    Ok(Some(world.finish()))
}

impl<'a> World<'a> {
    fn new(run: &'a Run<'a>) -> anyhow::Result<Self> {
        let index = Arc::new(SharedIndex::default());
        let scheduler = Scheduler::new(run.scheduler.clone(), Arc::clone(&index));
        let first = run.fleet.each().next().context("a fleet has engines")?;
        let size = BlockSize::new(first.block_size).context("a block holds tokens")?;
        let prompts = Prompts::new(size, run.workload.block_size());
        let mut machines = Vec::new();
        let mut places = HashMap::new();
        for (number, config) in run.fleet.each().enumerate() {
            let number = number as u16;
            let ip = Ipv4Addr::new(10, 0, (number >> 8) as u8, number as u8);
            let endpoint = scheduler
                .add(EndpointSpec {
                    address: SocketAddr::from((ip, 8_000)),
                    rank: None,
                    group: Arc::clone(&prompts.space().group),
                    block_size: Some(size),
                })
                .context("fewer than 65,536 engines")?;
            scheduler.set_ready(endpoint, true);
            scheduler.set_source_live(endpoint, true, Time::default());
            let room = u64::from(config.usable_blocks()) * u64::from(config.block_size);
            scheduler.set_kv_tokens(endpoint, room);
            places.insert(endpoint, number);
            machines.push(Machine {
                engine: Engine::new(config.clone())?,
                endpoint,
                stepping: false,
                outcome: StepOutcome::default(),
                batches: VecDeque::new(),
                copies: HashMap::new(),
                figures: VecDeque::new(),
                open: 0,
            });
        }
        let mut world = Self {
            run,
            scheduler,
            index,
            prompts,
            measured: Measured::new(machines.len(), run.workload),
            machines,
            places,
            open: HashMap::new(),
            queue: BinaryHeap::new(),
            inserted: 0,
            next_job: 0,
            rng: SmallRng::seed_from_u64(run.seed),
            spare: Vec::new(),
            stored: Vec::new(),
        };
        for number in 0..world.machines.len() as u16 {
            // engines are not scraped in step
            let offset = SCRAPE * u64::from(number) / world.machines.len() as u64;
            world.push(offset, What::Scrape(number));
        }
        world.push(SAMPLE, What::Note);
        Ok(world)
    }

    fn push(&mut self, at: u64, what: What) {
        self.inserted += 1;
        self.queue.push(Reverse((at, self.inserted, what)));
    }

    /// The next moment; false when nothing is left to happen.
    fn step(&mut self) -> anyhow::Result<bool> {
        let job = self.run.workload.jobs.get(self.next_job);
        if job.is_none() && self.open.is_empty() {
            return Ok(false);
        }
        let next = self.queue.peek().map(|Reverse((at, _, _))| *at);
        if let Some(job) = job
            && next.is_none_or(|next| job.at < next)
        {
            let number = self.next_job as u32;
            self.next_job += 1;
            self.arrive(number, job.at)?;
            return Ok(true);
        }
        let Some(Reverse((at, _, what))) = self.queue.pop() else {
            return Ok(false);
        };
        match what {
            What::StepEnds(machine) => self.step_ends(machine, at),
            What::EventsArrive(machine) => self.events_arrive(machine, at),
            What::Scrape(machine) => self.scrape(machine, at),
            What::FiguresArrive(machine) => {
                let machine = &mut self.machines[usize::from(machine)];
                if let Some((sample, used)) = machine.figures.pop_front() {
                    self.scheduler.scraped(machine.endpoint, sample, Time(at));
                    self.scheduler.set_kv_used(machine.endpoint, used);
                }
            }
            What::Note => self.note(at),
        }
        Ok(true)
    }

    fn arrive(&mut self, number: u32, at: u64) -> anyhow::Result<()> {
        let job = &self.run.workload.jobs[number as usize];
        let request = self.run.workload.request(job);
        let (prompt, engine_prompt) = self.prompts.make(request);
        let ask = PickRequest {
            request_id: "",
            model: "",
            prompts: std::slice::from_ref(&prompt),
            weight: 1,
            estimated: false,
            subset: None,
            lora: None,
            session: Some(job.session),
        };
        let pick = self.scheduler.pick(&ask, Time(at), &mut self.rng)?;
        let place = self.places[&pick.endpoint];
        let machine = &mut self.machines[usize::from(place)];
        machine.engine.add(
            Request {
                id: RequestId(u64::from(number)),
                prompt: engine_prompt,
                output: Output::Drawn {
                    seed: u64::from(request.line),
                    vocabulary: Arc::default(),
                },
                max_output: request.output_tokens.max(1),
                report_reused: false,
            },
            Duration::from_nanos(at),
        )?;
        machine.open += 1;
        self.measured.placed(number, place, pick.hit_tokens);
        if self.run.keep_forecasts {
            let forecast = self.scheduler.decisions(1).first().and_then(|decision| {
                let winner = |view: &&(String, _)| view.0 == decision.winner;
                decision
                    .candidates
                    .iter()
                    .find(winner)
                    .map(|(_, view)| view.score)
            });
            self.measured.forecast(number, forecast);
        }
        let open = Open {
            reservation: pick.reservation,
            machine: place,
            first: 0,
        };
        self.open.insert(number, open);
        self.begin_step(place, at);
        Ok(())
    }

    /// Begins a step if the engine is between two and has work.
    fn begin_step(&mut self, number: u16, at: u64) {
        let machine = &mut self.machines[usize::from(number)];
        if machine.stepping {
            return;
        }
        if machine
            .engine
            .step_into(Duration::from_nanos(at), &mut machine.outcome)
        {
            machine.stepping = true;
            let ends = machine.outcome.ends().as_nanos() as u64;
            self.push(ends, What::StepEnds(number));
        }
    }

    fn step_ends(&mut self, number: u16, at: u64) {
        let machine = &mut self.machines[usize::from(number)];
        machine.stepping = false;
        if !machine.outcome.events.is_empty() {
            let mut batch = self.spare.pop().unwrap_or_default();
            fill(&mut batch, &machine.outcome, self.prompts.root());
            machine.batches.push_back(batch);
            let delay = self.run.wiring.event_delay.as_nanos() as u64;
            if delay == 0 {
                self.events_arrive(number, at);
            } else {
                self.push(at + delay, What::EventsArrive(number));
            }
        }
        let outcome = std::mem::take(&mut self.machines[usize::from(number)].outcome);
        for token in &outcome.tokens {
            let job = token.id.0 as u32;
            if token.index == 0
                && let Some(open) = self.open.get_mut(&job)
            {
                open.first = at;
                if self.run.wiring.bodies {
                    self.scheduler.first_output(open.reservation, Time(at));
                }
            }
            if let Some(finished) = &token.finished
                && let Some(open) = self.open.remove(&job)
            {
                self.scheduler.release(open.reservation, Outcome::Done, Time(at));
                self.machines[usize::from(open.machine)].open -= 1;
                let tokens = u64::from(token.index) + 1;
                self.measured.finished(job, open.first, at, tokens, finished);
            }
        }
        self.machines[usize::from(number)].outcome = outcome;
        self.begin_step(number, at);
    }

    /// Index first, then the ledger.
    fn events_arrive(&mut self, number: u16, at: u64) {
        let machine = &mut self.machines[usize::from(number)];
        let Some(mut batch) = machine.batches.pop_front() else {
            return;
        };
        let slot = machine.endpoint.slot;
        self.stored.clear();
        {
            let mut index = self.index.write();
            for change in batch.changes.drain(..) {
                match change {
                    Change::Stored { parent, key } => {
                        if !index.insert(slot, key) {
                            *machine.copies.entry(key.get()).or_insert(0) += 1;
                        }
                        self.stored.push((parent, key));
                    }
                    Change::Removed(key) => match machine.copies.get_mut(&key.get()) {
                        Some(copies) if *copies > 1 => *copies -= 1,
                        Some(_) => {
                            machine.copies.remove(&key.get());
                        }
                        None => {
                            index.remove(slot, key);
                        }
                    },
                }
            }
        }
        self.spare.push(batch);
        if !self.stored.is_empty() {
            self.scheduler.stored(slot, &self.stored, Time(at));
        }
    }

    fn scrape(&mut self, number: u16, at: u64) {
        let machine = &mut self.machines[usize::from(number)];
        let load = machine.engine.load();
        let sample = ScrapeSample {
            sent: Time(at),
            running: load.running,
            waiting: load.waiting,
        };
        let config = machine.engine.config();
        let room = u64::from(config.usable_blocks()) * u64::from(config.block_size);
        machine
            .figures
            .push_back((sample, (load.kv_usage * room as f64) as u64));
        let delay = self.run.wiring.scrape_delay.as_nanos() as u64;
        self.push(at + delay, What::FiguresArrive(number));
        self.push(at + SCRAPE, What::Scrape(number));
    }

    fn note(&mut self, at: u64) {
        self.scheduler.tick(Time(at));
        let counters = self.scheduler.counters();
        let engines = self.machines.iter().map(|machine| Sample {
            batch: machine.open,
            prefilled: machine.engine.counters().prefilled_tokens,
        });
        self.measured.note(at, engines, counters.alarms, counters.filters);
        for note in self.scheduler.take_hotspot_notes() {
            self.measured.hotspot(at, note);
        }
        self.push(at + SAMPLE, What::Note);
    }

    fn finish(mut self) -> Measured {
        let counters = self.scheduler.counters();
        for note in self.scheduler.take_hotspot_notes() {
            self.measured.hotspot_at_the_end(note);
        }
        let preemptions = self
            .machines
            .iter()
            .map(|one| one.engine.counters().preemptions)
            .sum();
        self.measured
            .close(preemptions, counters.alarms, counters.filters);
        self.measured
    }
}

/// An engine's events, told apart from the buffer that its next step will reuse.
fn fill(batch: &mut Batch, outcome: &StepOutcome, root: BlockKey) {
    batch.changes.clear();
    for event in outcome.events.iter() {
        match event {
            Event::Stored { parent, hashes, .. } => {
                let mut parent = parent.map_or(root, |hash| BlockKey::from_raw(hash.0));
                for hash in hashes {
                    let key = BlockKey::from_raw(hash.0);
                    batch.changes.push(Change::Stored { parent, key });
                    parent = key;
                }
            }
            Event::Removed { hash } => batch.changes.push(Change::Removed(BlockKey::from_raw(hash.0))),
            // the engines of a simulation are never told to
            Event::Cleared => {}
        }
    }
}
