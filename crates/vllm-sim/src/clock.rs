//! Model time against real time.

use std::time::{Duration, Instant};

/// Model time runs `speed` times as fast as real time, from 0 at the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelClock {
    start: Instant,
    speed: f64,
}

impl ModelClock {
    /// Starts now.
    pub(crate) fn new(speed: f64) -> Self {
        Self {
            start: Instant::now(),
            speed,
        }
    }

    /// Model seconds per real second.
    pub(crate) fn speed(&self) -> f64 {
        self.speed
    }

    /// Model time now.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed().mul_f64(self.speed)
    }

    /// When model time will be `at`.
    pub(crate) fn instant(&self, at: Duration) -> Instant {
        self.start + at.div_f64(self.speed)
    }
}
