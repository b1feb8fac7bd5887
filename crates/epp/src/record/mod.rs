//! Recording: one line for each finished request in the layout of Mooncake's traces, for `lmetric simulate`. Lengths, times and
//! salted ids of prompt blocks; never text.
//!
//! The pick path hashes the prompt's tokens after the pick, outside of any lock, and never waits: a request's end goes
//! into a bounded queue to one writer ([`Writer`]), and where that is full the request is dropped and counted.

mod file;
mod ids;
mod writer;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use lmetric_api::Record;
use lmetric_scheduler::{Outcome, ReservationId, Scheduler, Time};
use tokio::sync::mpsc;

pub use file::{Sink, check};
pub use ids::{BLOCK, Salt};
pub use writer::Writer;

use crate::{
    guard::Answer,
    metrics::RecordMetrics,
    request::{ParsedRequest, RequestKind},
    tokens::{Chains, Content, Counted},
};

/// Ended requests that may wait for the writer.
const QUEUE: usize = 4_096;

/// Why a request is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Its tokens were only estimated.
    Estimated,
    /// It has no prompt that the picker knows of, or its answer is no text (embeddings).
    NoPrompt,
    /// It becomes several engine requests (`n`, lists of prompts).
    Several,
    /// The engine refused it or failed.
    Failed,
    /// The client left.
    Aborted,
    /// The picker lost sight of it.
    Lost,
    /// Nobody knows how long its answer was: no usage was seen and no live events were there.
    NoLength,
    /// Its line would be longer than a file may be.
    TooLong,
}

impl Skipped {
    /// All.
    pub const ALL: [Self; 8] = [
        Self::Estimated,
        Self::NoPrompt,
        Self::Several,
        Self::Failed,
        Self::Aborted,
        Self::Lost,
        Self::NoLength,
        Self::TooLong,
    ];

    /// Stable name for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Estimated => "estimated",
            Self::NoPrompt => "no_prompt",
            Self::Several => "several",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Lost => "lost",
            Self::NoLength => "no_length",
            Self::TooLong => "too_long",
        }
    }
}

/// How long an answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// The engine said so.
    Told(u64),
    /// To be had from the blocks that the engine stored.
    Decoded(ReservationId),
}

/// A request that ended well.
#[derive(Debug)]
struct Ended {
    arrived: Time,
    input: u32,
    ids: Box<[u64]>,
    length: Length,
    /// Its answer was seen.
    full: bool,
}

/// Begins the lines of requests.
pub struct Recorder {
    salt: Salt,
    queue: mpsc::Sender<Ended>,
    scheduler: Arc<Scheduler>,
    metrics: RecordMetrics,
    prompts: AtomicU64,
}

/// A request that was just placed.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// What was asked.
    pub request: &'a ParsedRequest,
    /// Its tokens.
    pub counted: &'a Counted,
    /// What its blocks depend on besides.
    pub chains: &'a Chains<'a>,
    /// Its reservation.
    pub reservation: ReservationId,
    /// When it came.
    pub arrived: Time,
}

/// The line of an open request.
pub struct Recording {
    recorder: Arc<Recorder>,
    arrived: Time,
    input: u32,
    ids: Box<[u64]>,
    reservation: ReservationId,
    /// Its decoded blocks are counted.
    followed: bool,
}

impl Recorder {
    /// A recorder and its writer; `None` when nothing is to be recorded. `speed` is model time ÷ real time.
    pub fn new(
        record: &Record,
        speed: f64,
        scheduler: Arc<Scheduler>,
        metrics: impl FnOnce() -> RecordMetrics,
    ) -> Option<(Arc<Self>, Writer)> {
        let sink = Sink::new(record)?;
        let metrics = metrics();
        let (queue, ended) = mpsc::channel(QUEUE);
        let writer = Writer::new(ended, sink, speed, scheduler.clone(), metrics.clone());
        let recorder = Arc::new(Self {
            salt: Salt::default(),
            queue,
            scheduler,
            metrics,
            prompts: AtomicU64::new(0),
        });
        Some((recorder, writer))
    }

    /// Begins a request's line; one that cannot be recorded is counted. O(tokens).
    pub fn begin(self: &Arc<Self>, placed: &Placed<'_>) -> Option<Recording> {
        let Placed {
            request,
            counted,
            chains,
            reservation,
            arrived,
        } = *placed;
        let answers = !matches!(request.kind, RequestKind::Embeddings | RequestKind::Other);
        let prompt = match counted.prompts.as_slice() {
            [] => Err(Skipped::NoPrompt),
            _ if !answers => Err(Skipped::NoPrompt),
            [prompt] if request.weight() == 1 => Ok(prompt),
            _ => Err(Skipped::Several),
        };
        let tokens = prompt.and_then(|prompt| match &prompt.content {
            Content::Exact(tokens) if prompt.tokens > 0 => Ok((tokens, prompt.tokens)),
            Content::Exact(_) => Err(Skipped::NoPrompt),
            Content::Guess(_) => Err(Skipped::Estimated),
        });
        match tokens {
            Ok((tokens, input)) => Some(Recording {
                ids: self
                    .salt
                    .ids(chains, tokens, input, self.prompts.fetch_add(1, Relaxed)),
                recorder: self.clone(),
                arrived,
                input,
                reservation,
                followed: self.scheduler.follow_answer(reservation),
            }),
            Err(why) => {
                self.metrics.skipped(why);
                None
            }
        }
    }
}

impl Recording {
    /// The request ended, and its reservation was released; never waits.
    pub fn end(self, outcome: Outcome, answer: &Answer) {
        let Self {
            recorder,
            arrived,
            input,
            ids,
            reservation,
            followed,
        } = self;
        let Answer {
            status,
            body_seen,
            output_tokens,
            output_events: _,
        } = *answer;
        let failed = status.is_some_and(|status| status >= 400);
        let length = match (outcome, output_tokens) {
            (Outcome::Done, _) if failed => Err(Skipped::Failed),
            (Outcome::Done, Some(tokens)) => Ok(Length::Told(tokens)),
            (Outcome::Done, None) if followed => Ok(Length::Decoded(reservation)),
            (Outcome::Done, None) => Err(Skipped::NoLength),
            (Outcome::ClientAbort, _) => Err(Skipped::Aborted),
            (Outcome::ServerError | Outcome::Unreachable, _) => Err(Skipped::Failed),
            (Outcome::Unknown, _) => Err(Skipped::Lost),
        };
        if followed && !matches!(length, Ok(Length::Decoded(_))) {
            recorder.scheduler.answer_tokens(reservation);
        }
        match length {
            Ok(length) => {
                let ended = Ended {
                    arrived,
                    input,
                    ids,
                    length,
                    full: body_seen,
                };
                if recorder.queue.try_send(ended).is_err() {
                    recorder.metrics.queue_full();
                    if followed {
                        recorder.scheduler.answer_tokens(reservation);
                    }
                }
            }
            Err(why) => recorder.metrics.skipped(why),
        }
    }
}
