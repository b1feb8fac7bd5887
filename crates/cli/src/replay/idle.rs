//! What lies between an idle engine and its client: requests one at a time, against the engine model's own figure.

use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use lmetric_engine::{Chunk, Gpu, Model, StepTime, StepWork};
use tokio_util::sync::CancellationToken;

use super::{
    open_loop::{Finished, Target},
    prompt::PromptMaker,
};
use crate::{
    client::exchange,
    run_file::{IdleOverhead, Record},
    stats::rounded,
    trace::{Arrival, Trace},
};

/// An idle engine, by the model.
#[derive(Clone, Debug)]
pub(super) struct IdleEngine {
    step: StepTime,
    tokens_per_step: u32,
}

impl IdleEngine {
    pub(super) fn new(profile: &str, tokens_per_step: u32) -> anyhow::Result<Self> {
        let Some(model) = Model::profile(profile) else {
            bail!(
                "--profile {profile:?}: no such engine model; give one of {}",
                Model::PROFILES.join(", ")
            );
        };
        Ok(Self {
            step: StepTime::new(&Gpu::h20(), &model),
            tokens_per_step,
        })
    }

    /// Time to the first token of a prompt alone on the engine: its prefill steps, chunk by chunk, in milliseconds.
    fn ttft_ms(&self, prompt_tokens: u64, cached_tokens: u64) -> f64 {
        let mut before = cached_tokens.min(prompt_tokens.saturating_sub(1));
        let mut seconds = 0.0;
        while before < prompt_tokens {
            let tokens = (prompt_tokens - before).min(u64::from(self.tokens_per_step));
            let chunk = Chunk {
                tokens: tokens as u32,
                before: before as u32,
            };
            seconds += self.step.seconds(&StepWork {
                chunks: vec![chunk],
                decodes: 0,
                decode_context: 0,
            });
            before += tokens;
        }
        seconds * 1e3
    }

    /// Measured against modelled, over the requests that succeeded; nothing where no answer told its prompt tokens.
    pub(super) fn compare(&self, records: &[Record]) -> Option<IdleOverhead> {
        let good = || {
            records
                .iter()
                .filter(|record| record.error.is_none() && record.prompt_tokens > 0)
        };
        let requests = good().count() as u64;
        let measured: f64 = good().filter_map(|record| record.ttft_ms).sum();
        let model: f64 = good()
            .map(|record| self.ttft_ms(record.prompt_tokens, record.cached_tokens))
            .sum();
        (requests > 0).then(|| IdleOverhead {
            requests,
            measured_ttft_ms: rounded(measured / requests as f64),
            model_ttft_ms: rounded(model / requests as f64),
            overhead: measured / model - 1.0,
        })
    }
}

/// Sends the arrivals' requests one after another, one output token each, and hands every end to `each`.
pub(super) async fn one_at_a_time(
    trace: &Trace,
    arrivals: &[Arrival],
    maker: &PromptMaker,
    target: &Target,
    cancel: &CancellationToken,
    mut each: impl FnMut(Finished),
) {
    let began = tokio::time::Instant::now();
    for arrival in arrivals {
        let request = &trace.requests[arrival.index];
        let body = Bytes::from(maker.body(request, 1));
        let planned = began.elapsed();
        let sending = exchange(&target.client, target.request(request.line, body), target.timeout);
        let Some(exchange) = cancel.run_until_cancelled(sending).await else {
            return;
        };
        each(Finished {
            line: request.line,
            planned,
            late: Duration::ZERO,
            exchange,
        });
        tokio::time::sleep(SETTLE).await;
    }
}

/// Between two requests, so that the engine's last step and the picker's release are over.
const SETTLE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_engines_ttft_is_the_sum_of_its_chunks() {
        let engine = IdleEngine::new("qwen2-7b", 8_192).unwrap();
        let whole = engine.ttft_ms(2_048, 0);
        assert!(
            (221.0..223.0).contains(&whole),
            "the engine crate's own example takes 222 ms, not {whole}"
        );
        let (long, first) = (engine.ttft_ms(10_000, 0), engine.ttft_ms(8_192, 0));
        let rest = engine.ttft_ms(10_000, 8_192);
        assert!((long - first - rest).abs() < 1e-6);
        assert!(
            engine.ttft_ms(2_048, 2_048) > 0.0,
            "at least one token is computed"
        );
        assert!(
            IdleEngine::new("gpt-9", 1)
                .unwrap_err()
                .to_string()
                .contains("qwen2-7b, qwen3-30b-a3b")
        );
    }
}
