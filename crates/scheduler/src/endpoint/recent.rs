//! How requests fared lately: sums that fade, so that a mean over them is one of the last minute or so.

use std::time::Duration;

use crate::{Outcome, Time, config::Pace, ledger::Reservation};

/// After this long a request counts half.
const HALF_LIFE: Duration = Duration::from_secs(30);
/// With fewer requests than this (faded ones count less than one) there is nothing to say.
const ENOUGH: f64 = 0.05;

/// Sums over requests that ended, each halved every 30 (model) seconds. Sums of several endpoints can be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Recent {
    /// Requests that ended.
    pub requests: f64,
    /// Their prompt tokens.
    pub prompt_tokens: f64,
    /// The part that was cached: what the engine said, else what was predicted.
    pub hit_tokens: f64,
    /// Requests whose first output was seen.
    pub first_outputs: f64,
    /// Their times from the pick to the first output, seconds.
    pub ttft_seconds: f64,
    /// Requests that ended well and whose output tokens were counted, two or more.
    pub outputs: f64,
    /// Their mean times per further output token, seconds.
    pub tpot_seconds: f64,
}

impl Recent {
    /// Share of prompt tokens that were cached.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.requests >= ENOUGH && self.prompt_tokens > 0.0).then(|| self.hit_tokens / self.prompt_tokens)
    }

    /// Mean time to first token, real seconds.
    pub fn ttft(&self) -> Option<f64> {
        (self.first_outputs >= ENOUGH).then(|| self.ttft_seconds / self.first_outputs)
    }

    /// Mean time per output token after the first, real seconds.
    pub fn tpot(&self) -> Option<f64> {
        (self.outputs >= ENOUGH).then(|| self.tpot_seconds / self.outputs)
    }

    /// These and `other`'s.
    #[must_use]
    pub fn plus(mut self, mut other: Self) -> Self {
        for (ours, theirs) in self.sums_mut().into_iter().zip(other.sums_mut()) {
            *ours += *theirs;
        }
        self
    }

    fn sums_mut(&mut self) -> [&mut f64; 7] {
        let Self {
            requests,
            prompt_tokens,
            hit_tokens,
            first_outputs,
            ttft_seconds,
            outputs,
            tpot_seconds,
        } = self;
        [
            requests,
            prompt_tokens,
            hit_tokens,
            first_outputs,
            ttft_seconds,
            outputs,
            tpot_seconds,
        ]
    }
}

/// [`Recent`] as it was at one time.
#[derive(Debug, Default)]
pub(crate) struct Fading {
    sums: Recent,
    at: Time,
}

impl Fading {
    /// A request ended here.
    pub(crate) fn ended(&mut self, reservation: &Reservation, outcome: Outcome, now: Time, pace: Pace) {
        let mut sums = self.at(now, pace);
        self.at = self.at.max(now);
        let tokens = reservation.tokens();
        let hit = reservation
            .cached
            .unwrap_or_else(|| reservation.predicted_tokens());
        sums.requests += 1.0;
        sums.prompt_tokens += tokens as f64;
        sums.hit_tokens += hit.min(tokens) as f64;
        if let Some(first) = reservation.first_output {
            sums.first_outputs += 1.0;
            sums.ttft_seconds += first.secs_since(reservation.picked);
            let each = |all: u64| all / u64::from(reservation.weight);
            if let Some(further) = reservation.output_tokens.map(|all| each(all).saturating_sub(1))
                && further > 0
                && outcome == Outcome::Done
            {
                sums.outputs += 1.0;
                sums.tpot_seconds += now.secs_since(first) / further as f64;
            }
        }
        self.sums = sums;
    }

    /// What is left of them at `now`.
    pub(crate) fn at(&self, now: Time, pace: Pace) -> Recent {
        let halves = now.secs_since(self.at) / pace.real(HALF_LIFE).as_secs_f64();
        let kept = (-halves).exp2();
        let mut sums = self.sums;
        for sum in sums.sums_mut() {
            *sum *= kept;
        }
        sums
    }
}
