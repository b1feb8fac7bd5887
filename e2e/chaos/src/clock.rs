//! Times of a run, counted from its beginning.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::time::Instant;

/// Milliseconds since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At(pub(crate) u64);

impl At {
    /// So many seconds after the beginning.
    #[cfg(test)]
    pub(crate) fn second(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }

    /// Time since `earlier`; none if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for At {
    type Output = Self;

    fn add(self, more: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(more.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:01} s", self.0 / 1_000, self.0 % 1_000 / 100)
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.0 as f64 / 1_000.0)
    }
}

/// Tells the time of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// The run begins now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Now.
    pub(crate) fn now(&self) -> At {
        At::default() + self.0.elapsed()
    }
}
