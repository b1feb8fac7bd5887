//! vLLM's own data-parallel balancer (`core_client.py`): `4 · waiting + running`, from the ledger instead of polled statistics.
//!
//! Waiting = no own event and no output yet. vLLM scans from a fixed index; here equal scores are drawn at random.

use rand::RngCore;

use super::{Policy, View};

#[derive(Debug)]
pub(super) struct Vllm;

impl Policy for Vllm {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        scores.extend(view.candidates.iter().map(|candidate| {
            let running = candidate.batch.saturating_sub(candidate.waiting);
            (4 * candidate.waiting + running) as f64
        }));
    }
}
