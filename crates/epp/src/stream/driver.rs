//! Runs an [`Exchange`] on a gRPC stream: one task for each, replies through a small channel.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{Stream, StreamExt};
use lmetric_proto::ext_proc::{ProcessingRequest, ProcessingResponse};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use tracing::debug;

use super::{
    conformance::Conformance,
    exchange::{End, Exchange, Step},
    replies::Destination,
};
use crate::{
    guard::{Place, Placement},
    refusal::{Refusal, RefusalKind},
    request::{self, Asked},
};

/// Bodies above this are parsed on a blocking thread: about half a millisecond of work.
const PARSE_INLINE: usize = 128 * 1024;

/// Bounds of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body; above it the client gets 413.
    pub body_bytes: usize,
    /// Longest time for one placement, a backstop: in FULL_DUPLEX_STREAMED no timeout of the gateway covers it.
    pub placing: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 20,
            placing: Duration::from_secs(5),
        }
    }
}

/// Counters of all streams; they only grow, but for `open`.
#[derive(Debug, Default)]
pub struct Stats {
    /// Streams now.
    pub open: AtomicU64,
    /// Streams so far.
    pub opened: AtomicU64,
    /// Requests placed and answered with a destination.
    pub placed: AtomicU64,
    /// Requests refused, by [`RefusalKind`] as a number.
    pub refused: [AtomicU64; RefusalKind::ALL.len()],
}

impl Stats {
    /// Streams now.
    pub fn open(&self) -> u64 {
        self.open.load(Relaxed)
    }

    fn count_refused(&self, kind: RefusalKind) {
        self.refused[kind as usize].fetch_add(1, Relaxed);
    }
}

/// What all streams share.
pub struct Driver<P> {
    place: Arc<P>,
    /// Largest request body; may change at run time.
    body_bytes: Arc<AtomicUsize>,
    placing_limit: Duration,
    stats: Arc<Stats>,
    /// Cancelled when streams must end.
    ending: CancellationToken,
    /// The gateway has been seen to show response headers.
    headers_shown: AtomicBool,
    /// Bodies parsed at once on blocking threads.
    parsers: Arc<Semaphore>,
    /// Does what the Inference Extension's conformance suite asks.
    conformance: bool,
}

type Placing = Pin<Box<dyn Future<Output = Result<Placement, Refusal>> + Send>>;
type Replies = mpsc::Sender<Result<ProcessingResponse, Status>>;

impl<P: Place> Driver<P> {
    /// A driver that places with `place`; streams end with OK once `ending` is cancelled.
    pub fn new(place: Arc<P>, limits: Limits, ending: CancellationToken) -> Self {
        let parsers = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            place,
            body_bytes: Arc::new(AtomicUsize::new(limits.body_bytes)),
            placing_limit: limits.placing,
            stats: Arc::default(),
            ending,
            headers_shown: AtomicBool::new(false),
            parsers: Arc::new(Semaphore::new(parsers)),
            conformance: false,
        }
    }

    /// From now on it does what the Inference Extension's conformance suite asks.
    pub fn obey_conformance(&mut self) {
        self.conformance = true;
    }

    /// Counters of its streams.
    pub fn stats(&self) -> Arc<Stats> {
        self.stats.clone()
    }

    /// Largest request body of streams that begin from now on; for whoever may change it.
    pub fn body_bytes(&self) -> Arc<AtomicUsize> {
        self.body_bytes.clone()
    }

    /// Serves one stream to its end. When it returns, or is dropped, the request's reservation has ended.
    pub async fn run<S>(&self, mut messages: S, replies: Replies)
    where
        S: Stream<Item = Result<ProcessingRequest, Status>> + Unpin + Send,
    {
        self.stats.opened.fetch_add(1, Relaxed);
        let _open = Open::new(&self.stats);
        let mut exchange = Exchange::new(self.body_bytes.load(Relaxed), self.headers_shown.load(Relaxed));
        let mut conformance = self.conformance.then(Conformance::default);
        let mut placing: Option<Placing> = None;
        let mut placement: Option<Placement> = None;
        let mut patience: Option<Instant> = None;
        let mut half_closed = false;
        let mut steps = Vec::new();
        loop {
            // a gateway may close its side before it has its answer
            if half_closed && placing.is_none() {
                exchange.end(End::Gateway, &mut steps);
            } else {
                tokio::select! {
                    biased;
                    () = replies.closed() => exchange.end(End::Gateway, &mut steps),
                    placed = poll(&mut placing) => {
                        placing = None;
                        let destination = self.admit(placed, &mut placement);
                        exchange.placed(destination, &mut steps);
                    }
                    message = messages.next(), if !half_closed => match message {
                        Some(Ok(mut message)) => {
                            if let Some(conformance) = &mut conformance {
                                conformance.message(&mut message);
                            }
                            exchange.message(message, &mut steps);
                            if exchange.saw_response_headers() {
                                self.headers_shown.store(true, Relaxed);
                            }
                        }
                        Some(Err(status)) if status.code() == Code::OutOfRange => {
                            exchange.oversized(&mut steps);
                        }
                        // cancelled or reset
                        Some(Err(status)) => {
                            debug!(code = ?status.code(), message = status.message(), "stream ended");
                            exchange.end(End::Gateway, &mut steps);
                        }
                        None => half_closed = true,
                    },
                    () = sleep(patience) => {
                        patience = None;
                        exchange.patience_over(&mut steps);
                    }
                    () = self.ending.cancelled(), if placing.is_none() => exchange.drain(&mut steps),
                }
            }
            for step in steps.drain(..) {
                match step {
                    // when nobody listens any more, the next round ends the exchange
                    Step::Reply(mut message) => {
                        if let Some(conformance) = &conformance {
                            conformance.reply(&mut message);
                        }
                        drop(replies.send(Ok(message)).await);
                    }
                    Step::Refused(kind) => self.stats.count_refused(kind),
                    Step::Place(asked) => placing = Some(self.placing(asked)),
                    Step::Wait(time) => patience = Some(Instant::now() + time),
                    Step::Status(status) => report(&mut placement, |p| p.status(status)),
                    Step::FirstOutput => report(&mut placement, Placement::first_output),
                    Step::ServedBy(address) => report(&mut placement, |p| p.served_by(address)),
                    Step::CachedTokens(tokens) => report(&mut placement, |p| p.cached_tokens(tokens)),
                    Step::Finish(outcome) => report(&mut placement, |p| {
                        p.answered(exchange.answered());
                        p.finish(outcome);
                    }),
                    Step::Close => return,
                }
            }
        }
    }

    /// Keeps the placement and tells the exchange where the request goes.
    fn admit(
        &self,
        placed: Result<Placement, Refusal>,
        placement: &mut Option<Placement>,
    ) -> Result<Destination, Refusal> {
        match placed {
            Ok(placed) => {
                self.stats.placed.fetch_add(1, Relaxed);
                let pick = placement.insert(placed).pick();
                Ok(Destination {
                    address: pick.address,
                    rank: pick.rank,
                })
            }
            Err(refusal) => {
                debug!(%refusal, "request refused");
                Err(refusal)
            }
        }
    }

    fn placing(&self, asked: Asked) -> Placing {
        let place = self.place.clone();
        let parsers = self.parsers.clone();
        let limit = self.placing_limit;
        Box::pin(async move {
            let placed = async {
                let request = parse(asked, &parsers).await?;
                place.place(Arc::new(request)).await
            };
            timeout(limit, placed).await.unwrap_or_else(|_| {
                let message = format!("Placing the request took longer than {limit:?}.");
                Err(Refusal::new(RefusalKind::NoEndpoint, message))
            })
        })
    }
}

async fn parse(asked: Asked, parsers: &Semaphore) -> Result<request::ParsedRequest, Refusal> {
    if asked.body.len() <= PARSE_INLINE {
        return request::read(asked);
    }
    let _slot = parsers.acquire().await.expect("never closed");
    tokio::task::spawn_blocking(|| request::read(asked))
        .await
        .unwrap_or_else(|error| {
            Err(Refusal::bad_request(format!(
                "The request body could not be read: {error}."
            )))
        })
}

fn report(placement: &mut Option<Placement>, event: impl FnOnce(&mut Placement)) {
    if let Some(placement) = placement {
        event(placement);
    }
}

/// The placement, when one is under way.
async fn poll(placing: &mut Option<Placing>) -> Result<Placement, Refusal> {
    match placing {
        Some(placing) => placing.await,
        None => std::future::pending().await,
    }
}

async fn sleep(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Counts a stream while it lives.
struct Open<'a>(&'a Stats);

impl<'a> Open<'a> {
    fn new(stats: &'a Stats) -> Self {
        stats.open.fetch_add(1, Relaxed);
        Self(stats)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}
