//! Load that is not ours: requests that reach an engine past this picker.
//!
//! Each scrape gives a sample, `max(0, running + waiting − largest own BS since 1 s before the scrape was sent)`: an engine
//! may still count a request that we saw end, and does not yet count one that is on its way. The smallest of the
//! last three samples counts; three missed scrapes in a row drop them.

use std::{collections::VecDeque, time::Duration};

use super::ScrapeSample;
use crate::{Time, config::Pace};

const SAMPLES: usize = 3;
/// An engine may count a finished request for that long.
const LAG: Duration = Duration::from_secs(1);
/// Scrapes are never older than that when they are reported.
const KEPT: Duration = Duration::from_secs(10);

/// Samples of the last scrapes.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    samples: VecDeque<u32>,
    /// The smallest of three samples; 0 while there are fewer.
    requests: u32,
    missed: u32,
    waiting: u32,
    last: Time,
}

impl Foreign {
    /// Foreign BS.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// Foreign requests that wait for their prefill.
    pub(crate) fn waiting(&self) -> u32 {
        self.requests().min(self.waiting)
    }

    /// Foreign Q at `mean_prompt` uncached tokens per request.
    pub(crate) fn tokens(&self, mean_prompt: f64) -> u64 {
        match self.waiting() {
            0 => 0,
            waiting => (f64::from(waiting) * mean_prompt).round() as u64,
        }
    }

    /// A scrape said `sample`; `own_prefilling` of our engine requests have Q > 0.
    pub(crate) fn scraped(&mut self, sample: ScrapeSample, own: &OwnPeak, own_prefilling: u64, pace: Pace) {
        let ScrapeSample {
            sent,
            running,
            waiting,
        } = sample;
        let seen = u64::from(running) + u64::from(waiting);
        let excess = seen.saturating_sub(own.since(sent.before(pace.real(LAG))));
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(saturated(excess));
        if self.samples.len() == SAMPLES {
            self.requests = self.samples.iter().copied().min().unwrap_or(0);
        }
        self.waiting = saturated(u64::from(waiting).saturating_sub(own_prefilling));
        self.missed = 0;
        self.last = self.last.max(sent);
    }

    /// Samples of before `horizon` no longer count.
    pub(crate) fn expire(&mut self, horizon: Time) {
        if self.last < horizon {
            self.clear();
        }
    }

    pub(crate) fn missed(&mut self) {
        self.missed += 1;
        if self.missed >= SAMPLES as u32 {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.samples.clear();
        self.requests = 0;
        self.waiting = 0;
    }
}

fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The largest own BS since a moment: a falling staircase of values and when each was last in force.
#[derive(Debug)]
pub(crate) struct OwnPeak {
    /// Strictly falling; the last one is in force.
    steps: VecDeque<(u64, Time)>,
    now: u64,
    kept: Duration,
}

impl OwnPeak {
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            steps: VecDeque::new(),
            now: 0,
            kept: pace.real(KEPT),
        }
    }

    /// BS is `bs` from `now` on. Amortised O(1).
    pub(crate) fn set(&mut self, bs: u64, now: Time) {
        if bs < self.now {
            self.steps.push_back((self.now, now));
        }
        self.now = bs;
        while self.steps.back().is_some_and(|(value, _)| *value <= bs) {
            self.steps.pop_back();
        }
        let horizon = now.before(self.kept);
        while self.steps.front().is_some_and(|(_, until)| *until < horizon) {
            self.steps.pop_front();
        }
    }

    /// The largest BS in force at any moment from `since` on. O(steps kept).
    pub(crate) fn since(&self, since: Time) -> u64 {
        self.steps
            .iter()
            .find(|(_, until)| *until >= since)
            .map_or(self.now, |(value, _)| *value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SchedulerConfig;

    fn pace() -> Pace {
        SchedulerConfig::default().pace()
    }

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    fn sample(sent: f64, running: u32, waiting: u32) -> ScrapeSample {
        ScrapeSample {
            sent: at(sent),
            running,
            waiting,
        }
    }

    #[test]
    fn foreign_is_the_smallest_of_three_samples_and_is_dropped_after_three_misses() {
        let own = OwnPeak::new(pace());
        let mut foreign = Foreign::default();
        for (sent, running) in [(1.0, 9), (2.0, 5)] {
            foreign.scraped(sample(sent, running, 0), &own, 0, pace());
            assert_eq!(foreign.requests(), 0, "fewer than three samples");
        }
        foreign.scraped(sample(3.0, 7, 4), &own, 1, pace());
        assert_eq!(foreign.requests(), 5);
        assert_eq!(foreign.waiting(), 3);
        assert_eq!(foreign.tokens(100.0), 300);
        foreign.missed();
        foreign.missed();
        assert_eq!(foreign.requests(), 5);
        foreign.missed();
        assert_eq!(foreign.requests(), 0);
    }

    #[test]
    fn own_requests_that_just_ended_are_not_foreign() {
        let mut own = OwnPeak::new(pace());
        own.set(6, at(1.0));
        own.set(0, at(2.5));
        let mut foreign = Foreign::default();
        for sent in [3.0, 3.2, 3.4] {
            foreign.scraped(sample(sent, 6, 0), &own, 0, pace());
        }
        assert_eq!(foreign.requests(), 0);
        for sent in [3.6, 4.6, 5.6] {
            foreign.scraped(sample(sent, 6, 0), &own, 0, pace());
        }
        assert_eq!(foreign.requests(), 6);
    }

    proptest! {
        #[test]
        fn the_staircase_equals_a_plain_maximum(
            changes in prop::collection::vec((1_u64..400, 0_u64..12), 1..60),
            back in 0_u64..9_000,
        ) {
            let mut own = OwnPeak::new(pace());
            let mut history = vec![(0_u64, 0_u64)];
            let mut millis = 0;
            for (step, bs) in changes {
                millis += step;
                own.set(bs, Time(millis * 1_000_000));
                history.push((millis, bs));
            }
            let since = millis.saturating_sub(back);
            let in_force = history.iter().rev().find(|(when, _)| *when < since).map(|(_, bs)| *bs);
            let after = history.iter().filter(|(when, _)| *when >= since).map(|(_, bs)| *bs);
            let plain = after.chain(in_force).max().unwrap_or(0);
            prop_assert_eq!(own.since(Time(since * 1_000_000)), plain);
        }
    }
}
