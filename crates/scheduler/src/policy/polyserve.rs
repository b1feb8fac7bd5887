//! PolyServe as the LMetric paper compares with it: among endpoints whose simulated TTFT and TPOT keep the limits, the one with
//! the *largest* TPOT (the fullest) wins; when none keeps them, the one with the smallest TPOT.

use rand::RngCore;

use super::{Policy, View, forecast::Forecast};

#[derive(Debug)]
pub(super) struct PolyServe {
    pub(super) forecast: Forecast,
    /// Seconds.
    pub(super) ttft: f64,
    /// Seconds.
    pub(super) tpot: f64,
}

impl Policy for PolyServe {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        for candidate in view.candidates {
            let tpot = self.forecast.tpot(view, candidate);
            let keeps = tpot <= self.tpot && self.forecast.ttft(view, candidate) <= self.ttft;
            scores.push(if keeps { -tpot } else { tpot });
        }
    }

    fn wants_backlog(&self) -> bool {
        true
    }
}
