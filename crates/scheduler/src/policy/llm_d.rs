//! The weighted scorers of llm-d's router (default profile, August 2026), the largest sum wins:
//! `2·(max W − W)/(max W − min W) + 2·(1 − KV use) + 3·(blocks matched / blocks of the prompt)`.
//!
//! W = waiting requests, all alike ⇒ 1. KV use = prompt tokens in flight ÷ tokens that the cache takes, 0 while the latter
//! is unknown; llm-d reads a gauge of the engine instead, which is older and counts generated tokens too.

use lmetric_policy::LlmD as Parameters;
use rand::RngCore;

use super::{Policy, View};

#[derive(Debug)]
pub(super) struct LlmD(pub(super) Parameters);

impl Policy for LlmD {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        let Parameters { queue, kv, prefix } = self.0;
        let longest = view.most(|candidate| candidate.waiting);
        let shortest = view.least(|candidate| candidate.waiting);
        let block = u64::from(view.asked.block_tokens.max(1));
        let blocks = (view.asked.tokens / block).max(1) as f64;
        scores.extend(view.candidates.iter().map(|candidate| {
            let idle = if longest == shortest {
                1.0
            } else {
                (longest - candidate.waiting) as f64 / (longest - shortest) as f64
            };
            let matched = (candidate.hit / block) as f64 / blocks;
            -(queue * idle + kv * (1.0 - candidate.kv_share()) + prefix * matched)
        }));
    }
}
