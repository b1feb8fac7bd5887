//! How long one engine step takes: a roofline per part (linear layers, output head, experts, prefill
//! attention, decode attention), each the larger of its compute and its memory time, and added up.

use std::time::Duration;

pub use lmetric_policy::PrefillChunk as Chunk;
use lmetric_policy::StepModel;

use crate::{
    config::EngineConfig,
    hardware::{Gpu, Model},
};

/// What a step computes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepWork {
    /// New prompt tokens and tokens before them, per prefill chunk.
    pub chunks: Vec<Chunk>,
    /// Requests that decode one token.
    pub decodes: u32,
    /// Tokens that all decodes attend to, together.
    pub decode_context: u64,
}

impl StepWork {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.decodes == 0
    }

    /// Prompt tokens of all chunks.
    pub fn prefill_tokens(&self) -> u32 {
        self.chunks.iter().map(|chunk| chunk.tokens).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.decodes = 0;
        self.decode_context = 0;
    }
}

/// The step-time formula with everything that does not depend on the step folded into coefficients.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    overhead: f64,
    linear_per_token: f64,
    linear_read: f64,
    head_per_row: f64,
    head_read: f64,
    attention_per_pair: f64,
    kv_read_per_token: f64,
    experts: Option<ExpertTime>,
}

#[derive(Clone, Debug, PartialEq)]
struct ExpertTime {
    per_token: f64,
    read_per_expert: f64,
    count: f64,
    idle_share: f64,
}

impl StepTime {
    /// The formula for `model` on `gpu`:
    ///
    /// `T = o + max(2·P·n/F', 2·P/W') + max(2·H·s/F', 2·H/W') + T_moe + Σ max(4·l·h·d·n_j·(c_j + n_j/2)/A', (c_j + n_j)·k/K') + C·k/K'`
    ///
    /// with `n` all tokens of the step, `s` the rows of the output head (decodes and chunks), `C` the decodes'
    /// context and primes for peak times efficiency.
    pub fn new(gpu: &Gpu, model: &Model) -> Self {
        let gemm = gpu.flops * gpu.gemm_efficiency;
        let moe = gpu.flops * gpu.moe_efficiency;
        let attention = gpu.flops * gpu.attention_efficiency;
        let weights = gpu.bandwidth * gpu.weight_efficiency;
        let kv = gpu.bandwidth * gpu.kv_efficiency;
        Self {
            overhead: model.overhead,
            linear_per_token: 2.0 * model.linear_params / gemm,
            linear_read: 2.0 * model.linear_params / weights,
            head_per_row: 2.0 * model.head_params / gemm,
            head_read: 2.0 * model.head_params / weights,
            attention_per_pair: 4.0 * model.layers * model.heads * model.head_dim / attention,
            kv_read_per_token: model.kv_bytes / kv,
            experts: model.experts.as_ref().map(|experts| ExpertTime {
                per_token: model.layers * 2.0 * experts.active * experts.params / moe,
                read_per_expert: model.layers * 2.0 * experts.params / weights,
                count: experts.count,
                idle_share: 1.0 - experts.active / experts.count,
            }),
        }
    }

    /// Seconds that `work` takes; 0 for no work.
    pub fn seconds(&self, work: &StepWork) -> f64 {
        self.seconds_of(&work.chunks, work.decodes, work.decode_context)
    }

    fn seconds_of(&self, chunks: &[Chunk], decodes: u32, decode_context: u64) -> f64 {
        if chunks.is_empty() && decodes == 0 {
            return 0.0;
        }
        let tokens = f64::from(chunks.iter().map(|chunk| chunk.tokens).sum::<u32>() + decodes);
        let rows = f64::from(decodes) + chunks.len() as f64;
        let linear = (self.linear_per_token * tokens).max(self.linear_read);
        let head = (self.head_per_row * rows).max(self.head_read);
        let experts = self.experts.as_ref().map_or(0.0, |experts| {
            let touched = experts.count * (1.0 - experts.idle_share.powf(tokens));
            (experts.per_token * tokens).max(experts.read_per_expert * touched)
        });
        let prefill: f64 = chunks
            .iter()
            .map(|chunk| {
                let (new, before) = (f64::from(chunk.tokens), f64::from(chunk.before));
                let compute = self.attention_per_pair * new * (before + new / 2.0);
                compute.max((before + new) * self.kv_read_per_token)
            })
            .sum();
        let decode = decode_context as f64 * self.kv_read_per_token;
        self.overhead + linear + head + experts + prefill + decode
    }

    /// [`StepTime::seconds`] to the nanosecond.
    pub fn duration(&self, work: &StepWork) -> Duration {
        Duration::from_nanos((self.seconds(work) * 1e9).round() as u64)
    }
}

/// The step times of an engine, for a policy that simulates it.
#[derive(Clone, Debug)]
pub struct SimulatedSteps {
    time: StepTime,
    most_tokens: u32,
    kappa: f64,
}

impl SimulatedSteps {
    /// Those of an engine with this configuration.
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            time: StepTime::new(&config.gpu, &config.model),
            most_tokens: config.max_num_batched_tokens,
            kappa: config.model.kappa(),
        }
    }
}

impl StepModel for SimulatedSteps {
    fn step_seconds(&self, chunks: &[Chunk], decodes: u32, decode_context: u64) -> f64 {
        self.time.seconds_of(chunks, decodes, decode_context)
    }

    fn most_tokens(&self) -> u32 {
        self.most_tokens
    }

    fn kappa(&self) -> f64 {
        self.kappa
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_ms(model: &Model, batch: u32, context: u32) -> f64 {
        let work = StepWork {
            chunks: Vec::new(),
            decodes: batch,
            decode_context: u64::from(batch) * u64::from(context),
        };
        StepTime::new(&Gpu::h20(), model).seconds(&work) * 1e3
    }

    fn prefill_ms(model: &Model, tokens: u32, before: u32) -> f64 {
        let work = StepWork {
            chunks: vec![Chunk { tokens, before }],
            decodes: 0,
            decode_context: 0,
        };
        StepTime::new(&Gpu::h20(), model).seconds(&work) * 1e3
    }

    /// The notes print two or three digits: half a unit of the last one is rounding, not the formula.
    fn assert_near(got: f64, printed: f64, unit: f64, what: &str) {
        let slack = (printed * 0.01).max(unit / 2.0);
        assert!(
            (got - printed).abs() <= slack,
            "{what}: {got:.3} ms, the notes say {printed}"
        );
    }

    #[test]
    fn decode_steps_of_the_dense_model_match_the_table() {
        let model = Model::qwen2_7b();
        let table: [(u32, [(f64, f64); 3]); 5] = [
            (1, [(5.9, 0.1), (6.0, 0.1), (6.2, 0.1)]),
            (32, [(6.5, 0.1), (8.2, 0.1), (15.0, 1.0)]),
            (64, [(9.8, 0.1), (13.0, 1.0), (27.0, 1.0)]),
            (128, [(18.0, 1.0), (25.0, 1.0), (53.0, 1.0)]),
            (256, [(35.0, 1.0), (49.0, 1.0), (104.0, 1.0)]),
        ];
        for (batch, row) in table {
            for ((printed, unit), context) in row.into_iter().zip([1024, 4096, 16_384]) {
                assert_near(
                    decode_ms(&model, batch, context),
                    printed,
                    unit,
                    &format!("B={batch} context={context}"),
                );
            }
        }
    }

    #[test]
    fn decode_steps_of_the_expert_model_match_the_table() {
        let model = Model::qwen3_30b_a3b();
        let table: [(u32, [(f64, f64); 3]); 6] = [
            (1, [(4.9, 0.1), (5.0, 0.1), (5.4, 0.1)]),
            (8, [(11.0, 1.0), (12.0, 1.0), (15.0, 1.0)]),
            (16, [(16.0, 1.0), (17.0, 1.0), (23.0, 1.0)]),
            (32, [(21.0, 1.0), (24.0, 1.0), (35.0, 1.0)]),
            (64, [(24.0, 1.0), (30.0, 1.0), (54.0, 1.0)]),
            (128, [(28.0, 1.0), (39.0, 1.0), (86.0, 1.0)]),
        ];
        for (batch, row) in table {
            for ((printed, unit), context) in row.into_iter().zip([1024, 4096, 16_384]) {
                assert_near(
                    decode_ms(&model, batch, context),
                    printed,
                    unit,
                    &format!("B={batch} context={context}"),
                );
            }
        }
    }

    #[test]
    fn prefill_alone_matches_the_table() {
        let dense = Model::qwen2_7b();
        assert_near(prefill_ms(&dense, 2048, 0), 222.0, 1.0, "7B 2,048");
        assert_near(prefill_ms(&dense, 8192, 0), 973.0, 1.0, "7B 8,192");
        let experts = Model::qwen3_30b_a3b();
        assert_near(prefill_ms(&experts, 2048, 0), 114.0, 1.0, "30B 2,048");
        assert_near(prefill_ms(&experts, 8192, 0), 626.0, 1.0, "30B 8,192");
        for (model, thousands) in [(&dense, 4.2), (&experts, 3.2)] {
            let rate = 8192.0 / prefill_ms(model, 8192, 32_768);
            assert_near(
                rate,
                thousands,
                0.1,
                &format!("{} after 32k, thousand tokens/s", model.name),
            );
        }
    }

    #[test]
    fn no_work_takes_no_time() {
        let time = StepTime::new(&Gpu::h20(), &Model::qwen2_7b());
        assert_eq!(time.duration(&StepWork::default()), Duration::ZERO);
    }
}
