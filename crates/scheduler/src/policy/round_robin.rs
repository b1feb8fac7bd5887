//! Round robin: the candidate whose slot follows that of the last pick, in a circle.

use lmetric_prefix::SourceId;
use rand::RngCore;

use super::{Policy, View};

#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    last: Option<SourceId>,
}

impl Policy for RoundRobin {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        let next = self.last.map_or(0, |last| last.0.wrapping_add(1));
        scores.extend(
            view.candidates
                .iter()
                .map(|candidate| f64::from(candidate.slot.0.wrapping_sub(next))),
        );
    }

    fn chosen(&mut self, view: &View<'_>, winner: usize) {
        self.last = Some(view.candidates[winner].slot);
    }
}
