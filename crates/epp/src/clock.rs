//! The process's clock: what the scheduler calls [`Time`].

use std::sync::atomic::{AtomicU64, Ordering};

use lmetric_scheduler::Time;
use tokio::time::Instant;

/// Nanoseconds since the clock was made. Tokio's clock, so tests can pause it.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Since(Instant),
    Driven(&'static AtomicU64),
}

impl Clock {
    /// A clock that starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Self(Source::Since(Instant::now()))
    }

    /// A clock that stands at these nanoseconds: virtual time, moved by who owns them.
    #[must_use]
    pub fn driven(nanoseconds: &'static AtomicU64) -> Self {
        Self(Source::Driven(nanoseconds))
    }

    /// Now.
    pub fn now(&self) -> Time {
        match self.0 {
            Source::Since(origin) => Time(origin.elapsed().as_nanos() as u64),
            Source::Driven(nanoseconds) => Time(nanoseconds.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driven_clock_moves_only_when_it_is_moved() {
        static NOW: AtomicU64 = AtomicU64::new(7);
        let clock = Clock::driven(&NOW);
        assert_eq!(clock.now(), Time(7));
        NOW.store(9, Ordering::Relaxed);
        assert_eq!(clock.now(), Time(9));
    }
}
