//! Preble's E2 (appendix A.1 of the LMetric paper): exploit a hit ratio above the threshold — the longest match wins, equal ones
//! by least queued prefill — else explore: the smallest `Σ (PT + DT)` over the requests placed there in the last
//! three minutes.
//!
//! `PT = ms per token · uncached + base`, `DT = ms per token · generated`, with the constants of Preble's A6000 fit. What a request
//! will generate is not known when it is placed: a constant stands for it.

use std::collections::VecDeque;

use lmetric_policy::Preble as Parameters;
use lmetric_prefix::SourceId;
use rand::RngCore;

use super::{Policy, View};

/// Requests remembered; the oldest go first.
const MOST: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Preble {
    parameters: Parameters,
    /// Placed in the window: when, where, at which cost in microseconds.
    placed: VecDeque<(f64, SourceId, u64)>,
    /// Their cost by slot.
    load: Vec<u64>,
}

impl Preble {
    pub(super) fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            placed: VecDeque::new(),
            load: Vec::new(),
        }
    }

    fn forget(&mut self, seconds: f64) {
        while let Some((at, slot, cost)) = self.placed.front().copied() {
            if at > seconds - self.parameters.window && self.placed.len() < MOST {
                break;
            }
            self.placed.pop_front();
            self.load[usize::from(slot.0)] -= cost;
        }
    }
}

impl Policy for Preble {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        self.forget(view.asked.seconds);
        let longest = view.most(|candidate| candidate.hit);
        let exploits = longest as f64 > self.parameters.threshold * view.asked.tokens as f64;
        scores.extend(view.candidates.iter().map(|candidate| {
            if !exploits {
                self.load.get(usize::from(candidate.slot.0)).copied().unwrap_or(0) as f64
            } else if candidate.hit == longest {
                candidate.queued as f64
            } else {
                f64::INFINITY
            }
        }));
    }

    fn chosen(&mut self, view: &View<'_>, winner: usize) {
        let Parameters {
            prefill_ms,
            prefill_base_ms,
            decode_ms,
            expected_output,
            ..
        } = self.parameters;
        let candidate = &view.candidates[winner];
        let prefill = prefill_ms * view.new_tokens(candidate) as f64 + prefill_base_ms;
        let decode = decode_ms * expected_output * f64::from(view.asked.weight);
        let cost = ((prefill + decode) * 1e3) as u64;
        let at = usize::from(candidate.slot.0);
        if self.load.len() <= at {
            self.load.resize(at + 1, 0);
        }
        self.load[at] += cost;
        self.placed.push_back((view.asked.seconds, candidate.slot, cost));
    }
}
