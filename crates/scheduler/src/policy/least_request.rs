//! Fewest engine requests, queued and running alike: `BS`.

use rand::RngCore;

use super::{Policy, View};

#[derive(Debug)]
pub(super) struct LeastRequest;

impl Policy for LeastRequest {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        scores.extend(view.candidates.iter().map(|candidate| candidate.batch as f64));
    }
}
