//! Dynamo's whole decision: tokens given; hash, look up, select and reserve, with 512 requests in flight.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Parser;
use dynamo_bench::{
    figures::{Asked, Figure, Told},
    ingest::{EVENTS, Listener, messages},
    payload::Layout,
    picker::{IN_FLIGHT, InFlight, Picker},
    workload::{ENDPOINTS, Numbers, Workload},
};
use tokio::runtime::{Builder, Runtime};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COUNT: usize = 4_000;
const LASTS: Duration = Duration::from_secs(2);
const BLOCKS_PER_S: u64 = 100_000;

/// Measures Dynamo's `SelectionCore::select_and_reserve`.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    asked: Asked,
    /// Threads that apply events: 1 chooses Dynamo's single-threaded index, more its concurrent one
    #[arg(long, default_value_t = 2)]
    index_threads: usize,
    /// Runtime threads beside the caller's when times are measured; without one nothing hops between threads
    #[arg(long, default_value_t = 0)]
    runtime_threads: usize,
    /// Writes Dynamo's log to standard error, as its service does: a line for each pick
    #[arg(long)]
    log: bool,
    /// Decisions that are awaited at the same time on two cores
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=512))]
    tasks: u64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if args.log {
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    }
    let mut told = Told::default();
    let workload = Arc::new(Workload::standard());
    let times = [("pick/8k/64", 8_192), ("pick/32k/64", 32_768)];
    if args.asked.wants(&times.map(|(name, _)| name)) {
        let runtime = match args.runtime_threads {
            0 => Builder::new_current_thread().enable_all().build()?,
            threads => Builder::new_multi_thread()
                .worker_threads(threads)
                .enable_all()
                .build()?,
        };
        let picker = runtime.block_on(Picker::filled(&workload, ENDPOINTS, args.index_threads))?;
        for (name, length) in times {
            if args.asked.wants(&[name]) {
                let runs = (0..args.asked.runs)
                    .map(|run| runtime.block_on(decide(&picker, &workload, name, length, run)))
                    .collect();
                told.add(Figure::times(name, runs));
            }
        }
    }
    let rates = [
        ("picks_per_s/2cores", 2_048, BLOCKS_PER_S),
        ("picks_per_s/2cores/8k", 8_192, BLOCKS_PER_S),
        ("picks_per_s/2cores/8k/quiet", 8_192, 0),
    ];
    // how long each of them takes that are awaited at the same time
    let crowded = [("crowded/8k/64", 8_192), ("crowded/32k/64", 32_768)];
    let names: Vec<_> = rates
        .iter()
        .map(|(name, ..)| *name)
        .chain(crowded.map(|(name, _)| name))
        .collect();
    if args.asked.wants(&names) {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let picker = runtime.block_on(Picker::filled(&workload, ENDPOINTS, args.index_threads))?;
        let crowd = Crowd {
            runtime,
            picker: Arc::new(picker),
            workload,
            tasks: args.tasks,
        };
        for (name, length, blocks_per_s) in rates {
            if args.asked.wants(&[name]) {
                let runs = (0..args.asked.runs).map(|run| crowd.decide(length, blocks_per_s, run).0);
                told.add(Figure::value(name, "picks/s", runs.collect()));
            }
        }
        for (name, length) in crowded {
            if args.asked.wants(&[name]) {
                let runs = (0..args.asked.runs).map(|run| crowd.decide(length, 0, run).1);
                told.add(Figure::times(name, runs.collect()));
            }
        }
    }
    told.write(&args.asked)
}

/// Times of decisions on prompts of `length` tokens, a conversation's beginning each.
async fn decide(picker: &Picker, workload: &Workload, name: &str, length: usize, run: u64) -> Vec<u64> {
    let prompts = workload.prompts(length);
    let mut numbers = Numbers(run);
    let mut flight = InFlight::new(IN_FLIGHT);
    let mut times = Vec::with_capacity(COUNT);
    let mut computed = 0;
    for number in 0..COUNT + IN_FLIGHT {
        let id = format!("{name}/{run}/{number}");
        // its copy of the tokens is the caller's, not the decision's
        let request = Picker::request(id.clone(), prompts[numbers.below(prompts.len() as u64) as usize]);
        let started = Instant::now();
        let picked = picker.pick(request).await;
        let took = started.elapsed();
        if number >= IN_FLIGHT {
            times.push(took.as_nanos() as u64);
            computed += picked.effective_prefill_tokens;
        }
        flight.add(picker, id).await;
    }
    flight.end(picker).await;
    let share = computed as f64 / (COUNT * length) as f64;
    eprintln!(
        "{name}: {:.1} % of the tokens are to be computed where it sends them",
        share * 100.0
    );
    times
}

/// Two threads that decide for several requests at the same time.
struct Crowd {
    runtime: Runtime,
    picker: Arc<Picker>,
    workload: Arc<Workload>,
    tasks: u64,
}

impl Crowd {
    /// Decisions in a second, and the time of each, while `blocks_per_s` blocks come in on a third thread.
    fn decide(&self, length: usize, blocks_per_s: u64, run: u64) -> (f64, Vec<u64>) {
        let over = Arc::new(AtomicBool::new(false));
        let decided = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let deciding: Vec<_> = (0..self.tasks)
            .map(|task| {
                let one = One {
                    picker: self.picker.clone(),
                    workload: self.workload.clone(),
                    name: format!("{run}/{task}"),
                    seed: run * self.tasks + task,
                    // as many in all as two that decide alone
                    in_flight: (2 * IN_FLIGHT).div_ceil(self.tasks as usize),
                };
                self.runtime
                    .spawn(one.repeat(length, over.clone(), decided.clone()))
            })
            .collect();
        let feeding = (blocks_per_s > 0).then(|| {
            let (picker, over, handle) = (self.picker.clone(), over.clone(), self.runtime.handle().clone());
            std::thread::spawn(move || handle.block_on(pace(&picker, blocks_per_s, &over)))
        });
        std::thread::sleep(LASTS);
        over.store(true, Ordering::Relaxed);
        let rate = decided.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        let times = deciding
            .into_iter()
            .flat_map(|task| self.runtime.block_on(task).expect("a deciding task ended well"))
            .collect();
        let blocks = feeding.map_or(0, |feeding| {
            feeding.join().expect("the feeding thread ended well")
        });
        eprintln!(
            "{rate:.0} picks/s, {} at a time, with {:.0} blocks/s coming in",
            self.tasks,
            blocks as f64 / started.elapsed().as_secs_f64()
        );
        (rate, times)
    }
}

/// One of several that ask.
struct One {
    picker: Arc<Picker>,
    workload: Arc<Workload>,
    name: String,
    seed: u64,
    in_flight: usize,
}

impl One {
    /// Asks again and again until `over`; the time of each decision.
    async fn repeat(self, length: usize, over: Arc<AtomicBool>, decided: Arc<AtomicU64>) -> Vec<u64> {
        let prompts = self.workload.prompts(length);
        let mut numbers = Numbers(self.seed);
        let mut flight = InFlight::new(self.in_flight);
        let mut times = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let id = format!("{}/{}", self.name, times.len());
            let prompt = prompts[numbers.below(prompts.len() as u64) as usize];
            let request = Picker::request(id.clone(), prompt);
            let started = Instant::now();
            self.picker.pick(request).await;
            times.push(started.elapsed().as_nanos() as u64);
            decided.fetch_add(1, Ordering::Relaxed);
            flight.add(&self.picker, id).await;
        }
        flight.end(&self.picker).await;
        times
    }
}

/// Feeds messages of 32 blocks an event to the first endpoint at this rate until `over`; how many blocks were applied.
async fn pace(picker: &Picker, blocks_per_s: u64, over: &AtomicBool) -> u64 {
    const PER: usize = 32;
    // the same ones again and again, so that the index does not grow
    let messages = messages(Layout::Map, PER, 65_536, 99);
    let mut listener = Listener::new(0);
    let gap = Duration::from_secs_f64((PER * EVENTS) as f64 / blocks_per_s as f64);
    let started = Instant::now();
    let mut sent: u32 = 0;
    let mut events = Vec::with_capacity(EVENTS);
    while !over.load(Ordering::Relaxed) {
        listener.receive(&messages[sent as usize % messages.len()], |event| {
            events.push(event);
        });
        for event in events.drain(..) {
            picker.apply(event).await;
        }
        sent += 1;
        let due = gap * sent;
        if let Some(wait) = due.checked_sub(started.elapsed()) {
            // a thread of its own, so nobody waits with it
            std::thread::sleep(wait);
        }
    }
    picker.drain().await;
    u64::from(sent) * (PER * EVENTS) as u64
}
