//! One streamed request, timed.

use std::{
    error::Error as StdError,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};

use super::{Chunk, HttpClient, SseParser, Usage, error_message};

/// Bytes of an error body that are read.
const ERROR_BYTES: usize = 64 << 10;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// The connection was lost before an answer came.
    NoAnswer,
    /// A status other than 200.
    Status,
    /// The answer is no event stream.
    NotAStream,
    /// The engine reported an error inside the stream.
    EngineError,
    /// The stream ended before `[DONE]`.
    CutOff,
    /// An event that is not JSON or is too long.
    Garbled,
    /// A complete stream with nothing in it.
    NoOutput,
    /// Longer than the time limit.
    Timeout,
    /// Not sent: as many were in flight as the user allows.
    InFlightLimit,
}

impl FailureKind {
    /// Its name in files and on the terminal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::NoAnswer => "no_answer",
            Self::Status => "status",
            Self::NotAStream => "not_a_stream",
            Self::EngineError => "engine_error",
            Self::CutOff => "cut_off",
            Self::Garbled => "garbled",
            Self::NoOutput => "no_output",
            Self::Timeout => "timeout",
            Self::InFlightLimit => "in_flight_limit",
        }
    }
}

/// A failure and what is known about it, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind.
    pub kind: FailureKind,
    /// Detail.
    pub message: String,
}

/// What was measured, as far as it got. Times count from the moment of sending.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    /// Status of the answer.
    pub status: Option<u16>,
    /// First chunk with generated output.
    pub first: Option<Duration>,
    /// Last chunk with generated output.
    pub last: Option<Duration>,
    /// Chunks with generated output.
    pub output_chunks: u64,
    /// End of the answer, or of the attempt.
    pub end: Duration,
    /// What the engine counted.
    pub usage: Option<Usage>,
    /// Absent when all went well.
    pub failure: Option<Failure>,
}

impl Exchange {
    /// Tokens generated: the engine's count, else one for each chunk.
    pub fn output_tokens(&self) -> u64 {
        self.usage.map_or(self.output_chunks, |usage| usage.output_tokens)
    }

    /// Mean time between tokens, `(last − first) / (n − 1)`; needs two tokens.
    pub fn time_per_output_token(&self) -> Option<Duration> {
        let gaps = self.output_tokens().checked_sub(1).filter(|gaps| *gaps > 0)?;
        Some(self.last?.saturating_sub(self.first?).div_f64(gaps as f64))
    }
}

/// Sends `request` and follows its stream to the end. Dropping the future aborts the request.
pub async fn exchange(client: &HttpClient, request: Request<Full<Bytes>>, limit: Duration) -> Exchange {
    let sent = Instant::now();
    let mut seen = Exchange::default();
    let result = tokio::time::timeout(limit, follow(client, request, sent, &mut seen)).await;
    seen.end = sent.elapsed();
    seen.failure = match result {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure),
        Err(_) => Some(fail(
            FailureKind::Timeout,
            format!("no end within {} s", limit.as_secs_f64()),
        )),
    };
    seen
}

async fn follow(
    client: &HttpClient,
    request: Request<Full<Bytes>>,
    sent: Instant,
    seen: &mut Exchange,
) -> Result<(), Failure> {
    let answer = client.request(request).await.map_err(|error| {
        let kind = if error.is_connect() {
            FailureKind::Connect
        } else {
            FailureKind::NoAnswer
        };
        fail(kind, causes(&error))
    })?;
    let status = answer.status();
    seen.status = Some(status.as_u16());
    let is_stream = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let mut body = answer.into_body();
    if !status.is_success() {
        let text = match Limited::new(body, ERROR_BYTES).collect().await {
            Ok(body) => error_message(&body.to_bytes()),
            Err(error) => causes(&*error),
        };
        return Err(fail(FailureKind::Status, format!("{status}: {text}")));
    }
    if !is_stream {
        return Err(fail(
            FailureKind::NotAStream,
            "the answer is not text/event-stream".to_owned(),
        ));
    }
    let mut parser = SseParser::default();
    let mut verdict = None;
    while let Some(bytes) = next_bytes(&mut body).await? {
        let now = sent.elapsed();
        let parsed = parser.push(&bytes, |data| match Chunk::read(data) {
            Chunk::Part { output, usage } => {
                if output {
                    seen.first.get_or_insert(now);
                    seen.last = Some(now);
                    seen.output_chunks += 1;
                }
                seen.usage = usage.or(seen.usage);
            }
            Chunk::Done => {
                verdict.get_or_insert(Ok(()));
            }
            Chunk::Error(message) => {
                verdict.get_or_insert(Err(fail(FailureKind::EngineError, message)));
            }
            Chunk::Unreadable => {
                let text = error_message(data);
                verdict.get_or_insert(Err(fail(
                    FailureKind::Garbled,
                    format!("an event is not JSON: {text}"),
                )));
            }
        });
        parsed.map_err(|error| fail(FailureKind::Garbled, error.to_string()))?;
    }
    verdict.unwrap_or_else(|| {
        Err(fail(
            FailureKind::CutOff,
            "the stream ended without [DONE]".to_owned(),
        ))
    })?;
    if seen.first.is_none() {
        return Err(fail(
            FailureKind::NoOutput,
            "the stream carried no output".to_owned(),
        ));
    }
    Ok(())
}

async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(fail(FailureKind::CutOff, causes(&error))),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

fn fail(kind: FailureKind, message: String) -> Failure {
    Failure { kind, message }
}

/// An error with its causes on one line.
pub(crate) fn causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
