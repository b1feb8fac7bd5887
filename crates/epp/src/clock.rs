//! The process's clock: what the scheduler calls [`Time`].

use lmetric_scheduler::Time;
use tokio::time::Instant;

/// Nanoseconds since the clock was made. Tokio's clock, so tests can pause it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Now.
    pub fn now(&self) -> Time {
        Time(self.origin.elapsed().as_nanos() as u64)
    }
}
