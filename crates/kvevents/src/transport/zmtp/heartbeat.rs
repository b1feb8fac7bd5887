//! Whether a peer that sends nothing is still there. Only one that knows heartbeats (ZMTP 3.1) is asked.

use std::time::Duration;

use tokio::time::Instant;

/// Silence before a peer is asked.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// Time to answer. libzmq answers on a thread of its own, however busy the engine is.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// What to do when a heartbeat is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// Send a PING.
    Ask,
    /// Give up: nothing came for so long after a PING.
    Dead(Duration),
}

/// The pulse of one connection.
#[derive(Debug)]
pub(super) struct Heartbeat {
    every: Duration,
    grace: Duration,
    due: Option<Instant>,
    asked: bool,
}

impl Heartbeat {
    /// For a peer that knows none: never due.
    pub(super) fn none() -> Self {
        Self {
            due: None,
            ..Self::new(EVERY, GRACE)
        }
    }

    pub(super) fn new(every: Duration, grace: Duration) -> Self {
        Self {
            every,
            grace,
            due: Some(Instant::now() + every),
            asked: false,
        }
    }

    /// When to call [`Heartbeat::beat`], for one that begins to wait now. A moment that passed while nobody waited
    /// says nothing about the peer: its answer may have arrived unseen.
    pub(super) fn due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if let Some(due) = self.due.as_mut().filter(|due| **due <= now) {
            *due = now + self.grace / 10;
        }
        self.due
    }

    /// Something was sent: if it was the question, the time to answer begins.
    pub(super) fn sent(&mut self) {
        if self.asked {
            self.due = Some(Instant::now() + self.grace);
        }
    }

    /// Anything arrived.
    pub(super) fn heard(&mut self) {
        if let Some(due) = &mut self.due {
            *due = Instant::now() + self.every;
            self.asked = false;
        }
    }

    /// The time has come.
    pub(super) fn beat(&mut self) -> Beat {
        if std::mem::replace(&mut self.asked, true) {
            return Beat::Dead(self.grace);
        }
        self.due = Some(Instant::now() + self.grace);
        Beat::Ask
    }
}
