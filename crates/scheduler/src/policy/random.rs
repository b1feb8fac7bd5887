//! Uniformly at random: every candidate ties.

use rand::RngCore;

use super::{Asked, Candidate, Policy};

#[derive(Debug)]
pub(super) struct Random;

impl Policy for Random {
    fn score(
        &mut self,
        _asked: &Asked,
        candidates: &[Candidate],
        scores: &mut Vec<f64>,
        _rng: &mut dyn RngCore,
    ) {
        scores.resize(scores.len() + candidates.len(), 0.0);
    }
}
