//! Charge the queue once, multiply only the new work by the crowd: `Q_c + p_c × (BS + w)^α` (this project's).
//!
//! A request waits for the queue once, but each new token stalls everybody in the batch. Both are counted in
//! attention-aware units, `c(n, c0) = n + κ·n·(c0 + n/2)` for `n` tokens after `c0`, with κ from the model's shape.
//! `α = ½ + ½·s`, s = share of candidates whose Q_c exceeds one prefill chunk: far from saturation decode steps of a
//! larger batch cost little more, past it every request in the batch waits for the new one's prefill.
//!
//! With `capacity`, prompt tokens beyond what the KV cache takes count as queued: they wait whatever the compute queue says.

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

    fn queue(&self, view: &View<'_>, candidate: &Candidate) -> f64 {
        let queue = candidate.queued as f64 + self.kappa * candidate.pairs as f64 / 2.0;
        let excess = match candidate.kv_tokens {
            Some(room) if self.capacity => {
                (candidate.resident + view.asked.tokens).saturating_sub(candidate.hit + room)
            }
            _ => 0,
        };
        queue + excess as f64
    }
}

impl Policy for Marginal {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        scores.extend(
            view.candidates
                .iter()
                .map(|candidate| self.queue(view, candidate)),
        );
        let alpha = self.alpha.unwrap_or_else(|| {
            let full = scores.iter().filter(|queue| **queue > self.chunk).count();
            0.5 + 0.5 * full as f64 / scores.len().max(1) as f64
        });
        let weight = u64::from(view.asked.weight);
        for (score, candidate) in scores.iter_mut().zip(view.candidates) {
            let new = view.new_tokens(candidate) as f64;
            let own = new + self.kappa * new * (candidate.hit as f64 + new / 2.0);
            *score += own * ((candidate.batch + weight) as f64).powf(alpha);
        }
    }

    fn is_guarded(&self) -> bool {
        true
    }
}
