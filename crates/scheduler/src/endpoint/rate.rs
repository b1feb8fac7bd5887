//! `rate_s`: tokens stored per second while prefill work that events tell of is outstanding.

use std::time::Duration;

use crate::{Time, config::Pace};

/// Memory of the moving average.
const MEMORY: Duration = Duration::from_secs(10);
/// Busy time after which the average is believed.
const ENOUGH: Duration = Duration::from_millis(200);

/// A moving average over busy time; idle time does not count.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    tokens: f64,
    busy: f64,
    at: Time,
}

impl Rate {
    /// Moves on to `now`; the time since the last call was `busy` or idle.
    pub(crate) fn advance(&mut self, now: Time, busy: bool, pace: Pace) {
        let seconds = now.secs_since(self.at);
        self.at = self.at.max(now);
        if busy && seconds > 0.0 {
            let kept = (-seconds / pace.real(MEMORY).as_secs_f64()).exp();
            self.tokens *= kept;
            self.busy = self.busy * kept + seconds;
        }
    }

    /// That many tokens were stored in the busy time before the last `advance`.
    pub(crate) fn add(&mut self, tokens: u64) {
        self.tokens += tokens as f64;
    }

    /// Tokens per real second, once enough was seen.
    pub(crate) fn measured(&self, pace: Pace) -> Option<f64> {
        (self.tokens > 0.0 && self.busy >= pace.real(ENOUGH).as_secs_f64()).then(|| self.tokens / self.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchedulerConfig;

    #[test]
    fn idle_time_does_not_lower_the_rate() {
        let pace = SchedulerConfig::default().pace();
        let mut rate = Rate::default();
        let mut now = Time::default();
        for _ in 0..100 {
            now = now.after(Duration::from_millis(100));
            rate.advance(now, true, pace);
            rate.add(900);
            now = now.after(Duration::from_secs(5));
            rate.advance(now, false, pace);
        }
        let measured = rate.measured(pace).unwrap();
        assert!((measured - 9_000.0).abs() < 100.0, "{measured}");
    }

    #[test]
    fn nothing_is_believed_after_a_blink() {
        let pace = SchedulerConfig::default().pace();
        let mut rate = Rate::default();
        rate.advance(Time(50_000_000), true, pace);
        rate.add(10_000);
        assert_eq!(rate.measured(pace), None);
    }
}
