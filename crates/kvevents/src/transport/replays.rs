//! Replays: few at once over the whole picker, because a publisher serves one on the thread that sends its live
//! messages; and for each source further apart the more often it asks.

use std::{sync::Arc, time::Duration};

use rand::Rng;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    socket::{Message, Replay, SocketError},
    zmtp::Fault,
};
use crate::ReplayId;

/// How long the transport waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For a connection, and for each message of a replay.
    pub patience: Duration,
    /// For a whole replay.
    pub replay: Duration,
    /// Between subscribing and asking for a replay: the subscription must have landed.
    pub settle: Duration,
    /// For any message, before the engine is asked whether it is still there.
    pub idle: Duration,
    /// Before the first attempt to connect again; doubles up to fifty times as much.
    pub reconnect: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            replay: Duration::from_mins(1),
            settle: Duration::from_millis(50),
            idle: Duration::from_secs(30),
            reconnect: Duration::from_millis(100),
        }
    }
}

/// The picker-wide limit on replays.
#[derive(Clone, Debug)]
pub struct Replays {
    permits: Arc<Semaphore>,
    timing: Timing,
}

impl Replays {
    /// At most `limit` at once.
    pub fn new(limit: usize) -> Self {
        Self::with_timing(limit, Timing::default())
    }

    /// At most `limit` at once, with other patience than the usual.
    pub fn with_timing(limit: usize, timing: Timing) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(limit.max(1))),
            timing,
        }
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }
}

/// What a replay brings.
#[derive(Debug)]
pub(super) enum Replayed {
    Message(Message),
    Failed(SocketError),
}

/// A replay that runs. Ends when dropped.
pub(super) struct Running {
    pub(super) id: ReplayId,
    endpoint: Arc<str>,
    messages: mpsc::Receiver<Replayed>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Starts a replay once `delay` is over and a permit is free.
    pub(super) fn start(replays: &Replays, endpoint: &str, from: u64, id: ReplayId, delay: Duration) -> Self {
        // two messages of up to 16 MiB wait at most; the rest waits at the publisher
        let (sender, messages) = mpsc::channel(2);
        let (permits, timing) = (Arc::clone(&replays.permits), replays.timing);
        let endpoint: Arc<str> = Arc::from(endpoint);
        let peer = Arc::clone(&endpoint);
        let task = tokio::spawn(async move {
            sleep(delay).await;
            let Ok(_permit) = permits.acquire_owned().await else {
                return;
            };
            let whole = timeout(timing.replay, run(&peer, from, timing.patience, &sender)).await;
            let failed = match whole {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(_) => SocketError::new(&peer, Fault::Silent(timing.replay)),
            };
            // a receiver that is gone wants no replay any more
            let _ = sender.send(Replayed::Failed(failed)).await;
        });
        Self {
            id,
            endpoint,
            messages,
            task,
        }
    }

    /// The next message. Cancel-safe.
    pub(super) async fn next(&mut self) -> Replayed {
        match self.messages.recv().await {
            Some(replayed) => replayed,
            None => Replayed::Failed(SocketError::new(&self.endpoint, Fault::Closed)),
        }
    }
}

async fn run(
    endpoint: &str,
    from: u64,
    patience: Duration,
    messages: &mpsc::Sender<Replayed>,
) -> Result<(), SocketError> {
    let mut replay = Replay::ask(endpoint, from, patience).await?;
    loop {
        let message = replay.receive().await?;
        let ended = matches!(message, Message::End);
        if messages.send(Replayed::Message(message)).await.is_err() || ended {
            return Ok(());
        }
    }
}

/// How long a source must wait with its next replay.
#[derive(Debug)]
pub(super) struct Pace {
    last: Option<Instant>,
    delay: Duration,
}

/// A source that needed no replay for so long starts afresh.
const CALM: Duration = Duration::from_mins(1);
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(30);

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            last: None,
            delay: SHORTEST,
        }
    }

    /// Delay of a replay wanted now: random below a ceiling that doubles with each replay in a row.
    pub(super) fn next(&mut self) -> Duration {
        let now = Instant::now();
        let calm = self.last.is_none_or(|last| now - last > CALM);
        self.delay = if calm {
            SHORTEST
        } else {
            (self.delay * 2).min(LONGEST)
        };
        self.last = Some(now);
        rand::rng().random_range(Duration::ZERO..self.delay)
    }
}
