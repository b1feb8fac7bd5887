//! How often engines are read, changeable while they are.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use lmetric_api::Scrape;
use tokio::time::Instant;

/// Shorter intervals are none.
const SHORTEST: Duration = Duration::from_millis(1);

/// Intervals, already divided by the speed. Clones share them.
#[derive(Clone, Debug)]
pub struct ScrapeSettings {
    now: Arc<ArcSwap<Scrape>>,
    since: Instant,
}

impl ScrapeSettings {
    /// `scrape` as configured, at this speed.
    pub fn new(scrape: Scrape, speed: f64) -> Self {
        Self {
            now: Arc::new(ArcSwap::from_pointee(quickened(scrape, speed))),
            since: Instant::now(),
        }
    }

    /// From the next read on.
    pub fn set(&self, scrape: Scrape, speed: f64) {
        self.now.store(Arc::new(quickened(scrape, speed)));
    }

    /// Now.
    pub fn now(&self) -> Scrape {
        **self.now.load()
    }

    /// The first moment after `at` when idle engines are looked at; the same for all clones.
    pub(crate) fn look(&self, at: Instant) -> Instant {
        let every = self.now().busy.max(SHORTEST);
        let passed = at.saturating_duration_since(self.since);
        let over = passed.as_nanos() % every.as_nanos();
        at.max(self.since) + every - Duration::from_nanos(over as u64)
    }
}

fn quickened(scrape: Scrape, speed: f64) -> Scrape {
    let Scrape { busy, idle, timeout } = scrape;
    Scrape {
        busy: busy.div_f64(speed),
        idle: idle.div_f64(speed),
        timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_engines_are_looked_at_in_the_same_moments_and_never_in_the_past() {
        let scrape = Scrape {
            busy: Duration::from_millis(700),
            idle: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
        };
        let settings = ScrapeSettings::new(scrape, 1.0);
        let other = settings.clone();
        let busy = settings.now().busy;
        let first = settings.look(settings.since);
        assert_eq!(first, settings.since + busy);
        for part in [0.001, 0.3, 0.999] {
            assert_eq!(other.look(settings.since + busy.mul_f64(part)), first);
        }
        assert_eq!(other.look(first), first + busy);
        let later = settings.since + busy * 1_000_003;
        assert_eq!(settings.look(later + busy / 4), later + busy);
    }
}
