//! llm-d's latency predictor as the LMetric paper compares with it: the smallest simulated TTFT wins.
//!
//! The simulator is an engine model that is passed in (`forecast`): the fleet's own is an oracle; with `error` each
//! prediction is multiplied by `exp(error · N(0, 1))`, which is a tuned one (the paper's figure 16 has one request in ten more than 20 %
//! off: at 0.08, for the smallest of several noisy predictions errs low); another model's is the paper's untuned one.

use rand::RngCore;

use super::{Policy, View, forecast::Forecast, unit};

#[derive(Debug)]
pub(super) struct LlmDTtft {
    pub(super) forecast: Forecast,
    pub(super) error: f64,
}

impl Policy for LlmDTtft {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, rng: &mut dyn RngCore) {
        for candidate in view.candidates {
            let seconds = self.forecast.ttft(view, candidate);
            let factor = if self.error > 0.0 {
                (self.error * normal(rng)).exp()
            } else {
                1.0
            };
            scores.push(seconds * factor);
        }
    }

    fn wants_backlog(&self) -> bool {
        true
    }
}

/// A standard normal number (Box and Muller).
fn normal(rng: &mut dyn RngCore) -> f64 {
    (-2.0 * unit(rng).ln()).sqrt() * (std::f64::consts::TAU * unit(rng)).cos()
}
