//! The one task that writes a recording.
//!
//! An answer whose length is counted by its blocks waits a moment, because an engine's events come by another way than
//! the end of the exchange. Lines are written where blocking is allowed, many at once.

use std::{collections::VecDeque, fmt::Write as _, sync::Arc, time::Duration};

use lmetric_scheduler::Scheduler;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{BLOCK, Ended, Length, Sink, Skipped};
use crate::metrics::RecordMetrics;

/// Events of an answer's last blocks have come by then.
const GRACE: Duration = Duration::from_millis(500);
/// Requests taken from the queue at once.
const BATCH: usize = 256;
/// Requests that may wait for events; above that the oldest wait no longer.
const MOST_WAITING: usize = 1 << 15;
/// Between two log lines about a file that cannot be written.
const TELL: Duration = Duration::from_mins(1);

/// Writes what ended.
pub struct Writer {
    queue: mpsc::Receiver<Ended>,
    sink: Option<Sink>,
    speed: f64,
    scheduler: Arc<Scheduler>,
    metrics: RecordMetrics,
    waiting: VecDeque<(Instant, Ended)>,
    /// The first line, known with the first request.
    first: Option<String>,
    told: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        queue: mpsc::Receiver<Ended>,
        sink: Sink,
        speed: f64,
        scheduler: Arc<Scheduler>,
        metrics: RecordMetrics,
    ) -> Self {
        Self {
            queue,
            sink: Some(sink),
            speed,
            scheduler,
            metrics,
            waiting: VecDeque::new(),
            first: None,
            told: None,
        }
    }

    /// Writes until `token` is cancelled, then what is left in the queue.
    pub async fn run(mut self, token: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let due = self.waiting.front().map(|(due, _)| *due);
            tokio::select! {
                () = token.cancelled() => break,
                taken = self.queue.recv_many(&mut batch, BATCH) => if taken == 0 {
                    // nobody will send any more
                    token.cancelled().await;
                    break;
                },
                () = until(due) => {}
            }
            self.take(&mut batch, false).await;
        }
        self.queue.close();
        while let Ok(ended) = self.queue.try_recv() {
            batch.push(ended);
        }
        self.take(&mut batch, true).await;
    }

    /// Writes what is due; at the end everything is.
    async fn take(&mut self, batch: &mut Vec<Ended>, at_the_end: bool) {
        let now = Instant::now();
        let mut lines = Vec::new();
        for ended in batch.drain(..) {
            match ended.length {
                Length::Told(_) => lines.extend(self.line(&ended)),
                Length::Decoded(_) => self.waiting.push_back((now + GRACE, ended)),
            }
        }
        while let Some((due, _)) = self.waiting.front()
            && (*due <= now || at_the_end || self.waiting.len() > MOST_WAITING)
            && let Some((_, ended)) = self.waiting.pop_front()
        {
            lines.extend(self.line(&ended));
        }
        if !lines.is_empty() {
            self.write(lines).await;
        }
    }

    /// The request's line; none where nobody knows the answer's length.
    fn line(&mut self, ended: &Ended) -> Option<String> {
        let Ended {
            arrived,
            input,
            ids,
            length,
            full,
        } = ended;
        let (output, estimated) = match *length {
            Length::Told(tokens) => (tokens, false),
            Length::Decoded(reservation) => {
                let Some(tokens) = self.scheduler.answer_tokens(reservation) else {
                    self.metrics.skipped(Skipped::NoLength);
                    return None;
                };
                (u64::from(tokens), true)
            }
        };
        let speed = self.speed;
        self.first.get_or_insert_with(|| {
            let mode = if *full { "full" } else { "light" };
            format!("{{\"block_size\":{BLOCK},\"speed\":{speed},\"mode\":\"{mode}\"}}\n")
        });
        let milliseconds = arrived.0 as f64 / 1e6 * speed;
        let mut line = String::with_capacity(96 + 17 * ids.len());
        let estimated = if estimated { ",\"estimated\":true" } else { "" };
        write!(
            line,
            "{{\"timestamp\":{milliseconds:.3},\"input_length\":{input},\"output_length\":{output}{estimated},\"hash_ids\":["
        )
        .expect("a String takes every write");
        for (at, id) in ids.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(line, "{comma}{id}").expect("a String takes every write");
        }
        line.push_str("]}\n");
        Some(line)
    }

    async fn write(&mut self, lines: Vec<String>) {
        let count = lines.len() as u64;
        let (Some(mut sink), Some(first)) = (self.sink.take(), self.first.clone()) else {
            self.metrics.write_failed(count);
            return;
        };
        let written = tokio::task::spawn_blocking(move || {
            let written = sink.write(&first, &lines);
            (sink, written)
        });
        let Ok((sink, written)) = written.await else {
            self.metrics.write_failed(count);
            tracing::error!("writing the recording panicked; nothing more is recorded");
            return;
        };
        self.sink = Some(sink);
        match written {
            Ok(too_long) => {
                self.metrics.recorded(count - too_long);
                (0..too_long).for_each(|_| self.metrics.skipped(Skipped::TooLong));
            }
            Err(error) => {
                self.metrics.write_failed(count);
                if self.told.is_none_or(|told| told.elapsed() >= TELL) {
                    self.told = Some(Instant::now());
                    tracing::error!(%error, "the recording cannot be written; requests are lost for it until it can");
                }
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
