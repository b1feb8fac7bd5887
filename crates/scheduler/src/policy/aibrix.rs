//! AIBrix's prefix-cache policy (Go): when max − min requests exceeds the range, only the least loaded endpoints remain.
//! Among those with a match the longest wins (then fewest requests, then chance) whose requests are at most
//! `mean + deviations · σ`; when there is none, fewest requests.
//!
//! Mean and σ (of the population) are over the endpoints that remain.

use rand::RngCore;

use super::{Candidate, Policy, View};

/// Longer than any match, so that requests decide only between equal matches.
const MATCH: f64 = 1e6;

#[derive(Debug)]
pub(super) struct Aibrix {
    pub(super) range: u64,
    pub(super) deviations: f64,
}

impl Policy for Aibrix {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        let least = view.least(|candidate| candidate.batch);
        let most = view.most(|candidate| candidate.batch);
        let is_uneven = most - least > self.range;
        let remains = |candidate: &&Candidate| !is_uneven || candidate.batch == least;
        let remaining = || view.candidates.iter().filter(remains);
        let count = remaining().count().max(1) as f64;
        let mean = remaining().map(|one| one.batch as f64).sum::<f64>() / count;
        let variance = remaining()
            .map(|one| (one.batch as f64 - mean).powi(2))
            .sum::<f64>()
            / count;
        let bound = mean + self.deviations * variance.sqrt();
        let follows = |candidate: &&Candidate| candidate.hit > 0 && candidate.batch as f64 <= bound;
        let any = remaining().any(|candidate| follows(&candidate));
        scores.extend(view.candidates.iter().map(|candidate| {
            if !remains(&candidate) || (any && !follows(&candidate)) {
                f64::INFINITY
            } else if any {
                candidate.batch as f64 - MATCH * candidate.hit as f64
            } else {
                candidate.batch as f64
            }
        }));
    }
}
