//! An engine's near future by its step times: what is queued there is prefilled first come, first served, in chunks
//! beside the decodes, until the request at hand has its first token.
//!
//! As the LMetric authors rebuild llm-d's predictor: the schedule is rolled forward for at most 256 steps (what is left
//! then goes on at the pace so far); nobody's end is foreseen.

use lmetric_policy::{EngineModel, PrefillChunk};

use super::{Candidate, View};

const MOST_STEPS: u32 = 256;
/// Tokens per second where no model says better.
const RATE: f64 = 8_000.0;

#[derive(Debug)]
pub(super) struct Forecast {
    engine: Option<EngineModel>,
    chunks: Vec<PrefillChunk>,
}

impl Forecast {
    pub(super) fn new(engine: Option<EngineModel>) -> Self {
        Self {
            engine,
            chunks: Vec::new(),
        }
    }

    /// Seconds to the first token of the request on `candidate`. O(steps + queue there).
    pub(super) fn ttft(&mut self, view: &View<'_>, candidate: &Candidate) -> f64 {
        let new = view.new_tokens(candidate) as u32;
        let Self { engine, chunks } = self;
        let Some(engine) = engine else {
            return (candidate.queued + u64::from(new)) as f64 / RATE;
        };
        let queue = view.backlog(candidate);
        let prompt = |at: usize| {
            queue.get(at).map_or((new, view.asked.tokens as u32), |queued| {
                (queued.left, queued.tokens)
            })
        };
        let mut decodes = candidate.batch.saturating_sub(candidate.prefilling) as u32;
        let in_prefill = queue.iter().map(|queued| u64::from(queued.tokens)).sum();
        let mut context = candidate.resident.saturating_sub(in_prefill);
        let (mut at, mut computed, mut seconds, mut passed) = (0, 0, 0.0, 0_u64);
        for _ in 0..MOST_STEPS {
            let mut budget = engine.most_tokens().saturating_sub(decodes).max(1);
            let (mut ended, mut ended_tokens) = (0, 0_u64);
            chunks.clear();
            while at <= queue.len() && budget > 0 {
                let (left, tokens) = prompt(at);
                let part = (left - computed).min(budget);
                chunks.push(PrefillChunk {
                    tokens: part,
                    before: tokens - left + computed,
                });
                budget -= part;
                passed += u64::from(part);
                computed += part;
                if computed == left {
                    (at, computed) = (at + 1, 0);
                    ended += 1;
                    ended_tokens += u64::from(tokens);
                }
            }
            seconds += engine.step_seconds(chunks, decodes, context);
            if at > queue.len() {
                return seconds;
            }
            decodes += ended;
            context += ended_tokens;
        }
        let all = queue.iter().map(|queued| u64::from(queued.left)).sum::<u64>() + u64::from(new);
        seconds * all as f64 / passed.max(1) as f64
    }

    /// Seconds per token once this request decodes with everybody that is there.
    pub(super) fn tpot(&self, view: &View<'_>, candidate: &Candidate) -> f64 {
        let decodes = candidate.batch + u64::from(view.asked.weight);
        match &self.engine {
            Some(engine) => engine.step_seconds(&[], decodes as u32, candidate.resident + view.asked.tokens),
            None => decodes as f64 / 1_000.0,
        }
    }
}
