//! Fewest engine requests, queued and running alike: `BS`.

use rand::RngCore;

use super::{Asked, Candidate, Policy};

#[derive(Debug)]
pub(super) struct LeastRequest;

impl Policy for LeastRequest {
    fn score(
        &mut self,
        _asked: &Asked,
        candidates: &[Candidate],
        scores: &mut Vec<f64>,
        _rng: &mut dyn RngCore,
    ) {
        scores.extend(candidates.iter().map(|candidate| candidate.batch as f64));
    }
}
