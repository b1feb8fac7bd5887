//! NVIDIA Dynamo 1.6's KV router, in blocks of b tokens, the smallest wins:
//! `scale · max(0, (Q + L)/b − credit) + (A + L)/b + weight · BS`.
//!
//! A = prompt tokens in flight (generated ones are not seen here). `credit = overlap · hit/b`, divided by
//! `1 + decay · (Q − min Q)/b / (L/b)`. With a temperature the winner is drawn by a softmax of the cost normalised to
//! 0–1 (as the smallest of `cost/temperature − Gumbel noise`). Host and disk tiers are not followed here.

use lmetric_policy::Dynamo as Parameters;
use rand::RngCore;

use super::{Policy, View, unit};

#[derive(Debug)]
pub(super) struct Dynamo(pub(super) Parameters);

impl Policy for Dynamo {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, rng: &mut dyn RngCore) {
        let Parameters {
            prefill_load_scale,
            overlap_credit,
            credit_decay,
            active_request_weight,
            temperature,
        } = self.0;
        let block = f64::from(view.asked.block_tokens.max(1));
        let tokens = view.asked.tokens as f64;
        let idlest = view.least(|candidate| candidate.queued);
        scores.extend(view.candidates.iter().map(|candidate| {
            let backlog = (candidate.queued - idlest) as f64 / tokens.max(1.0);
            let credit = overlap_credit * candidate.hit as f64 / block / (1.0 + credit_decay * backlog);
            let prefill = ((candidate.queued as f64 + tokens) / block - credit).max(0.0);
            let decode = (candidate.resident as f64 + tokens) / block;
            prefill_load_scale * prefill + decode + active_request_weight * candidate.batch as f64
        }));
        if temperature > 0.0 {
            let low = scores.iter().copied().fold(f64::INFINITY, f64::min);
            let high = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let span = if high > low { high - low } else { 1.0 };
            for score in scores {
                let gumbel = -(-unit(rng).ln()).ln();
                *score = (*score - low) / span / temperature - gumbel;
            }
        }
    }
}
