//! Round robin: the candidate whose slot follows that of the last pick, in a circle.

use lmetric_prefix::SourceId;
use rand::RngCore;

use super::{Asked, Candidate, Policy};

#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    last: Option<SourceId>,
}

impl Policy for RoundRobin {
    fn score(
        &mut self,
        _asked: &Asked,
        candidates: &[Candidate],
        scores: &mut Vec<f64>,
        _rng: &mut dyn RngCore,
    ) {
        let next = self.last.map_or(0, |last| last.0.wrapping_add(1));
        scores.extend(
            candidates
                .iter()
                .map(|candidate| f64::from(candidate.slot.0.wrapping_sub(next))),
        );
    }

    fn chosen(&mut self, winner: &Candidate) {
        self.last = Some(winner.slot);
    }
}
