//! All that the scheduler's lock guards.

use std::time::Duration;

use crate::{
    SchedulerConfig, Time,
    checks::Checks,
    decisions::DecisionRing,
    endpoint::{Fleet, Spaces},
    hotspot::Detector,
    ledger::{Answers, Rates, Slab},
    pick::Scratch,
    policy::{self, Policy},
    shadow::Shadow,
};

/// How old the pool's mean rate may be.
const RATES_AGE: Duration = Duration::from_millis(250);

/// Counters that only grow; read for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Picks made.
    pub picks: u64,
    /// Requests refused for want of an endpoint.
    pub refused: u64,
    /// Reservations closed by each outcome: done, abort, server error, unreachable, unknown (that includes those closed because
    /// their endpoint was removed or restarted).
    pub released: [u64; 5],
    /// Reservations whose Q fell to zero by rate because the source was not live or the tokens were estimates.
    pub released_by_rate: u64,
    /// Hotspot alarms raised.
    pub alarms: u64,
    /// Hotspot filters put in force.
    pub filters: u64,
    /// Ejections.
    pub ejections: u64,
    /// Requests served elsewhere than picked.
    pub moved: u64,
    /// Requests whose engine stored blocks but none of the request's keys.
    pub token_mismatches: u64,
}

/// An exponentially weighted mean over the last few dozen values.
#[derive(Debug, Default)]
pub(crate) struct Mean {
    value: f64,
    seen: u32,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64) {
        self.seen = (self.seen + 1).min(64);
        self.value += (value - self.value) / f64::from(self.seen);
    }

    pub(crate) fn get(&self) -> f64 {
        self.value
    }
}

pub(crate) struct State {
    pub(crate) config: SchedulerConfig,
    pub(crate) fleet: Fleet,
    pub(crate) spaces: Spaces,
    pub(crate) slab: Slab,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) hotspot: Detector,
    pub(crate) ring: DecisionRing,
    pub(crate) checks: Checks,
    pub(crate) counters: Counters,
    /// Uncached tokens per engine request.
    pub(crate) mean_prompt: Mean,
    pub(crate) scratch: Scratch,
    pub(crate) shadow: Option<Shadow>,
    /// Answers whose length somebody asks for.
    pub(crate) answers: Answers,
    pool_rate: f64,
    pool_rate_at: Option<Time>,
}

impl State {
    pub(crate) fn new(config: SchedulerConfig) -> Self {
        Self {
            fleet: Fleet::default(),
            spaces: Spaces::default(),
            slab: Slab::default(),
            policy: policy::build(&config),
            hotspot: Detector::new(config.pace()),
            ring: DecisionRing::new(config.decisions),
            checks: Checks::default(),
            counters: Counters::default(),
            mean_prompt: Mean::default(),
            scratch: Scratch::default(),
            shadow: Shadow::of(&config),
            answers: Answers::default(),
            pool_rate: config.pace().rate(config.default_rate),
            pool_rate_at: None,
            config,
        }
    }

    pub(crate) fn reconfigure(&mut self, config: SchedulerConfig) {
        let paired = |config: &SchedulerConfig| (config.policy, config.shadow.clone(), config.speed);
        if paired(&config) != paired(&self.config) {
            self.shadow = Shadow::of(&config);
        }
        if config.policy != self.config.policy || config.engine != self.config.engine {
            self.policy = policy::build(&config);
        }
        if config.speed != self.config.speed || config.hotspot != self.config.hotspot {
            self.counters.alarms += self.hotspot.alarms();
            self.counters.filters += self.hotspot.filters();
            self.hotspot = Detector::new(config.pace());
        }
        self.ring.resize(config.decisions);
        self.config = config;
        self.pool_rate_at = None;
    }

    /// What an endpoint's rate is taken for now.
    pub(crate) fn rates(&self) -> Rates {
        let pace = self.config.pace();
        Rates {
            pace,
            fallback: self.pool_rate,
            configured: pace.rate(self.config.default_rate),
        }
    }

    /// Takes the pool's mean rate anew when the last one is old. O(endpoints), a few times per second.
    pub(crate) fn refresh_rates(&mut self, now: Time) {
        let pace = self.config.pace();
        if self
            .pool_rate_at
            .is_some_and(|at| now < at.after(pace.real(RATES_AGE)))
        {
            return;
        }
        self.pool_rate_at = Some(now);
        let measured = self
            .fleet
            .iter()
            .filter_map(|endpoint| endpoint.rate.measured(pace));
        let (sum, count) = measured.fold((0.0, 0_u32), |(sum, count), rate| (sum + rate, count + 1));
        self.pool_rate = if count == 0 {
            pace.rate(self.config.default_rate)
        } else {
            sum / f64::from(count)
        };
    }
}
