//! Linear combination (the LMetric paper's reading of Alibaba's Bailian router): `λ·(1 − h) + (1 − λ)·BS / max BS`, the
//! smallest wins; h = hit ratio of the prompt.

use rand::RngCore;

use super::{Policy, View};

#[derive(Debug)]
pub(super) struct Bailian {
    pub(super) lambda: f64,
}

impl Policy for Bailian {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        let most = view.most(|candidate| candidate.batch).max(1) as f64;
        scores.extend(view.candidates.iter().map(|candidate| {
            let missed = 1.0 - view.hit_ratio(candidate);
            self.lambda * missed + (1.0 - self.lambda) * candidate.batch as f64 / most
        }));
    }
}
