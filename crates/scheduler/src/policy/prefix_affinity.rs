//! Consistent hashing with bounded loads (Mirrokni et al., 2018) of the prompt's first tokens: rendezvous order, passing over
//! whoever would hold more than `⌈1.25 · (all + 1) / n⌉` requests.
//!
//! The first tokens are the full blocks within `tokens`, at least one; a prompt without a full block goes where fewest requests are.

use lmetric_policy::PrefixAffinity as Parameters;
use rand::RngCore;

use super::{Policy, View};
use crate::endpoint::mix;

#[derive(Debug)]
pub(super) struct PrefixAffinity(pub(super) Parameters);

impl Policy for PrefixAffinity {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        let Parameters { tokens, load_factor } = self.0;
        let keys = view.asked.keys;
        let depth = (tokens / view.asked.block_tokens.max(1)).max(1) as usize;
        let Some(key) = keys.get(depth.min(keys.len()).wrapping_sub(1)) else {
            scores.extend(view.candidates.iter().map(|candidate| candidate.batch as f64));
            return;
        };
        let weight = u64::from(view.asked.weight);
        let all: u64 = view.candidates.iter().map(|candidate| candidate.batch).sum();
        let mean = (all + weight) as f64 / view.candidates.len().max(1) as f64;
        // a fleet whose mean is below one request still takes one everywhere
        let most = ((load_factor * mean).ceil() as u64).max(weight);
        scores.extend(view.candidates.iter().map(|candidate| {
            if candidate.batch + weight <= most {
                -(mix(key.get(), candidate.identity) as f64)
            } else {
                candidate.batch as f64
            }
        }));
    }
}
