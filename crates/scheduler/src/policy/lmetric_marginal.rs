//! Charge the queue once, multiply only the new work by the crowd: `Q_c + p_c × (BS + w)^α` (this project's).
//!
//! A request waits for the queue once, but each new token stalls everybody in the batch. Both are counted in
//! attention-aware units, `c(n, c0) = n + κ·n·(c0 + n/2)` for `n` tokens after `c0`, with κ from the model's shape.
//! `α = ½ + ½·s`, s = share of candidates whose Q_c exceeds one prefill chunk: far from saturation decode steps of a
//! larger batch cost little more, past it every request in the batch waits for the new one's prefill.
//!
//! With `capacity`, the new work is divided by the share of the KV cache that is left once it is in: `own · room / left`, at least one
//! token left. What is taken is what requests use by the last scrape, generated tokens included and evictable blocks not, plus
//! the prompt tokens that were not computed then or came since. A request that would not fit costs as much as the whole cache.

use lmetric_policy::{EngineModel, Marginal as Parameters};
use rand::RngCore;

use super::{Candidate, Policy, View};

/// vLLM's `max_num_batched_tokens` on large GPUs, where no model says better.
const CHUNK: u32 = 8_192;

#[derive(Debug)]
pub(super) struct Marginal {
    alpha: Option<f64>,
    capacity: bool,
    kappa: f64,
    chunk: f64,
}

impl Marginal {
    pub(super) fn new(parameters: Parameters, engine: Option<&EngineModel>) -> Self {
        let Parameters {
            alpha,
            kappa,
            capacity,
            model: _,
            gpu: _,
        } = parameters;
        Self {
            alpha,
            capacity,
            kappa: kappa.or(engine.map(|model| model.kappa())).unwrap_or(0.0),
            chunk: f64::from(engine.map_or(CHUNK, |model| model.most_tokens())),
        }
    }

    /// How much dearer new work is for want of room.
    fn pressure(&self, candidate: &Candidate, new: f64) -> f64 {
        match (candidate.kv_tokens, candidate.kv_taken()) {
            (Some(room), Some(taken)) if self.capacity && room > 0 => {
                let room = room as f64;
                room / (room - taken as f64 - new).max(1.0)
            }
            _ => 1.0,
        }
    }
}

impl Policy for Marginal {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        scores.extend(
            view.candidates
                .iter()
                .map(|candidate| candidate.queued as f64 + self.kappa * candidate.pairs as f64 / 2.0),
        );
        let alpha = self.alpha.unwrap_or_else(|| {
            let full = scores.iter().filter(|queue| **queue > self.chunk).count();
            0.5 + 0.5 * full as f64 / scores.len().max(1) as f64
        });
        let weight = u64::from(view.asked.weight);
        for (score, candidate) in scores.iter_mut().zip(view.candidates) {
            let new = view.new_tokens(candidate) as f64;
            let own = new + self.kappa * new * (candidate.hit as f64 + new / 2.0);
            let crowd = ((candidate.batch + weight) as f64).powf(alpha);
            *score += own * crowd * self.pressure(candidate, new);
        }
    }

    fn is_guarded(&self) -> bool {
        true
    }
}
