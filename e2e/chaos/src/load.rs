//! Streams that begin one after another in both pools, each on a connection of its own: what a connection kept from before a fault does is
//! the client's matter.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lmetric_testkit::cluster::MODEL;
use lmetric_testkit::{Client, complete_stream};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::{At, Clock};
use crate::fault::Pool;
use crate::record::Record;

/// Between the beginnings of two streams of a pool.
const EVERY: Duration = Duration::from_millis(750);
/// Tokens of a stream: 1 to 9 s at the engines' speed.
const TOKENS: std::ops::RangeInclusive<u32> = 17..=150;
/// Prompts share long beginnings, as chats do.
const FAMILIES: u32 = 6;

/// What was sent, and what became of it; shared by load, checker and judge.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book(Arc<Mutex<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    /// Ended and not judged yet.
    ended: Vec<Record>,
    /// Engine of each request under way or not judged yet.
    engines: HashMap<String, IpAddr>,
    begun: u64,
    under_way: u64,
}

impl Book {
    /// One more is under way; how many began so far.
    fn begin(&self) -> u64 {
        let mut pages = self.0.lock();
        pages.begun += 1;
        pages.under_way += 1;
        pages.begun
    }

    fn end(&self, record: Record) {
        let mut pages = self.0.lock();
        pages.under_way -= 1;
        pages.ended.push(record);
    }

    /// A picker sent a request to this engine.
    pub(crate) fn sent(&self, id: &str, engine: IpAddr) {
        self.0.lock().engines.insert(id.to_owned(), engine);
    }

    /// Requests so far, and those under way.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let pages = self.0.lock();
        (pages.begun, pages.under_way)
    }

    /// Takes what ended before `until`, each with its engine if a picker named one.
    pub(crate) fn take(&self, until: At) -> Vec<Record> {
        let mut pages = self.0.lock();
        let (mut ended, later) = std::mem::take(&mut pages.ended)
            .into_iter()
            .partition::<Vec<_>, _>(|record| record.ended < until);
        pages.ended = later;
        for record in &mut ended {
            record.engine = pages.engines.remove(&record.id);
        }
        // decisions that were read again after their record was taken
        if pages.under_way == 0 && pages.ended.is_empty() {
            pages.engines.clear();
        }
        ended
    }

    /// Sends one request on a connection of its own and writes down what became of it; whether it was served.
    pub(crate) async fn send(
        &self,
        clock: Clock,
        pool: Pool,
        to: SocketAddr,
        id: String,
        prompt: &str,
        tokens: u32,
    ) -> bool {
        let client = Client::from_address(to, address_of(self.begin()));
        let began = clock.now();
        let done = complete_stream(&client, &id, MODEL, prompt, tokens).await;
        let served = done.is_ok();
        self.end(Record {
            id,
            pool,
            began,
            ended: clock.now(),
            engine: None,
            failure: done.err(),
        });
        served
    }
}

/// An address for each request in turn (the cluster's `start.sh` lets 10.97.0.0/16 be ours). A node remembers for two minutes to
/// which pod it sent a connection that was never answered, and sends the next one from the same address and port there as well:
/// with one address for all clients that meets some of the thousands that connect after a node is lost.
fn address_of(number: u64) -> IpAddr {
    let [.., high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 97, high, low.clamp(1, 254)).into()
}

/// The load; it runs until dropped.
pub(crate) struct Load {
    running: watch::Sender<bool>,
    book: Book,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins streams to each pool's address.
    pub(crate) fn start(targets: &[(Pool, SocketAddr)], book: &Book, clock: Clock, seed: u64) -> Self {
        let (running, _) = watch::channel(true);
        let streams = |(pool, to): &(Pool, SocketAddr)| {
            let random = StdRng::seed_from_u64(seed ^ *pool as u64);
            tokio::spawn(streams(
                *pool,
                *to,
                book.clone(),
                clock,
                random,
                running.subscribe(),
            ))
        };
        let tasks = targets.iter().map(streams).collect();
        Self {
            running,
            book: book.clone(),
            tasks,
        }
    }

    /// Whether it runs, for others that pause with it.
    pub(crate) fn running(&self) -> watch::Receiver<bool> {
        self.running.subscribe()
    }

    /// Begins no more.
    pub(crate) fn pause(&self) {
        self.running.send_replace(false);
    }

    /// Waits until nothing is under way; whether that came within `limit`.
    pub(crate) async fn drained(&self, limit: Duration) -> bool {
        let waited = tokio::time::timeout(limit, async {
            while self.book.counts().1 > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        waited.await.is_ok()
    }

    /// Goes on.
    pub(crate) fn resume(&self) {
        self.running.send_replace(true);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn streams(
    pool: Pool,
    to: SocketAddr,
    book: Book,
    clock: Clock,
    mut random: StdRng,
    mut running: watch::Receiver<bool>,
) {
    let mut beat = tokio::time::interval(EVERY);
    for number in 0_u64.. {
        if running.wait_for(|running| *running).await.is_err() {
            return;
        }
        beat.tick().await;
        let (tokens, family) = (random.random_range(TOKENS), random.random_range(0..FAMILIES));
        let book = book.clone();
        tokio::spawn(async move {
            let id = format!("{}-{number}", pool.name());
            let prompt = prompt(family, number);
            book.send(clock, pool, to, id, &prompt, tokens).await;
        });
    }
}

fn prompt(family: u32, number: u64) -> String {
    let lore =
        format!("Document {family}: a teacher of distributed systems answers in few words. ").repeat(12);
    format!("{lore}Question {number}: what is a key-value cache?")
}
