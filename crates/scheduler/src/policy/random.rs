//! Uniformly at random: every candidate ties.

use rand::RngCore;

use super::{Policy, View};

#[derive(Debug)]
pub(super) struct Random;

impl Policy for Random {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        scores.resize(scores.len() + view.candidates.len(), 0.0);
    }
}
