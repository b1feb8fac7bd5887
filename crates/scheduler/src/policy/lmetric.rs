//! LMetric (OSDI'26, arXiv 2603.15202, figure 17b): `(Q + max(w, Σ(L − hit))) × (BS + w)`.
//!
//! P-token — what the engine must prefill before this request's first token — times batch size. `BS + w` and the floor
//! of `w` tokens keep an idle endpoint, or a full hit, from scoring zero whatever else is there.

use rand::RngCore;

use super::{Asked, Candidate, Policy};

#[derive(Debug)]
pub(super) struct Lmetric;

impl Policy for Lmetric {
    fn score(
        &mut self,
        asked: &Asked,
        candidates: &[Candidate],
        scores: &mut Vec<f64>,
        _rng: &mut dyn RngCore,
    ) {
        let weight = u64::from(asked.weight);
        scores.extend(candidates.iter().map(|candidate| {
            let new = asked.tokens.saturating_sub(candidate.hit).max(weight);
            (candidate.queued + new) as f64 * (candidate.batch + weight) as f64
        }));
    }

    fn follows_prefixes(&self) -> bool {
        true
    }
}
