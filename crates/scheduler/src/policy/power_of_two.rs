//! The better of two candidates drawn at random, by BS (Mitzenmacher, 2001).

use rand::RngCore;

use super::{Policy, View, below};

#[derive(Debug)]
pub(super) struct PowerOfTwo;

impl Policy for PowerOfTwo {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, rng: &mut dyn RngCore) {
        let count = view.candidates.len() as u32;
        let one = below(rng, count);
        let mut other = below(rng, count.saturating_sub(1).max(1));
        if other >= one {
            other += 1;
        }
        scores.extend((0..count).zip(view.candidates).map(|(at, candidate)| {
            if at == one || at == other {
                candidate.batch as f64
            } else {
                f64::INFINITY
            }
        }));
    }
}
