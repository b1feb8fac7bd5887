//! GPUs and models as the step-time formula sees them: a handful of numbers each.
//!
//! The H20 efficiencies are calibrated guesses (H200 kernel tables scaled; H20 is so short of compute that it
//! runs closer to its peak); nothing here is measured on an H20. Treat absolute times as ±15 %.

use serde::{Deserialize, Serialize};

/// One GPU: peak rates and the shares of them that kernels reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Name, for logs.
    pub name: String,
    /// Dense bf16 peak, FLOP/s.
    pub flops: f64,
    /// Memory bandwidth, B/s.
    pub bandwidth: f64,
    /// Memory, bytes.
    pub memory: f64,
    /// Memory that is neither weights nor KV (activations, graphs), bytes.
    pub reserved: f64,
    /// Share of `flops` that dense GEMMs reach.
    pub gemm_efficiency: f64,
    /// Share of `flops` that grouped expert GEMMs reach.
    pub moe_efficiency: f64,
    /// Share of `flops` that prefill attention reaches.
    pub attention_efficiency: f64,
    /// Share of `bandwidth` that reading weights reaches.
    pub weight_efficiency: f64,
    /// Share of `bandwidth` that reading KV reaches.
    pub kv_efficiency: f64,
}

/// Expert layers of a mixture-of-experts model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Experts per layer.
    pub count: f64,
    /// Experts that one token uses.
    pub active: f64,
    /// Parameters of one expert.
    pub params: f64,
}

/// One model, bf16, on one GPU (tensor parallel 1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name of the profile.
    pub name: String,
    /// Layers.
    pub layers: f64,
    /// Query heads.
    pub heads: f64,
    /// Dimension of a head.
    pub head_dim: f64,
    /// Parameters of the linear layers that every token uses, without experts and output head.
    pub linear_params: f64,
    /// Parameters of the output head.
    pub head_params: f64,
    /// KV bytes per token over all layers.
    pub kv_bytes: f64,
    /// Bytes of all weights.
    pub weight_bytes: f64,
    /// Fixed cost of a step, seconds.
    pub overhead: f64,
    /// Expert layers, if any.
    #[serde(default)]
    pub experts: Option<Experts>,
    /// Token ids, special ones included.
    pub vocabulary: u32,
}

impl Gpu {
    /// Names that [`Gpu::profile`] knows.
    pub const PROFILES: [&'static str; 3] = ["H20", "H20-3e", "H100"];

    /// A built-in profile.
    pub fn profile(name: &str) -> Option<Self> {
        match name {
            "H20" => Some(Self::h20()),
            "H20-3e" => Some(Self::h20_3e()),
            "H100" => Some(Self::h100()),
            _ => None,
        }
    }

    /// NVIDIA H20, 96 GB.
    pub fn h20() -> Self {
        Self {
            name: "H20".to_owned(),
            flops: 148e12,
            bandwidth: 4.0e12,
            memory: 102.6e9,
            reserved: 3e9,
            gemm_efficiency: 0.85,
            moe_efficiency: 0.75,
            attention_efficiency: 0.75,
            weight_efficiency: 0.80,
            kv_efficiency: 0.82,
        }
    }

    /// NVIDIA H20-3e: an H20 with 141 GB of faster memory.
    pub fn h20_3e() -> Self {
        Self {
            name: "H20-3e".to_owned(),
            bandwidth: 4.8e12,
            memory: 151.4e9,
            ..Self::h20()
        }
    }

    /// NVIDIA H100 SXM, 80 GB. The shares are those of the H200 kernel tables: a part with compute to spare runs further from
    /// its peak.
    pub fn h100() -> Self {
        Self {
            name: "H100".to_owned(),
            flops: 989e12,
            bandwidth: 3.35e12,
            memory: 85.5e9,
            reserved: 3e9,
            gemm_efficiency: 0.78,
            moe_efficiency: 0.49,
            attention_efficiency: 0.50,
            weight_efficiency: 0.84,
            kv_efficiency: 0.85,
        }
    }

    /// Tokens of KV cache beside `model` when vLLM may use `utilization` of the memory; 0 if the weights do
    /// not fit.
    pub fn kv_tokens(&self, model: &Model, utilization: f64) -> u64 {
        let free = self.memory * utilization - model.weight_bytes - self.reserved;
        (free / model.kv_bytes).max(0.0) as u64
    }
}

impl Model {
    /// κ: attention FLOPs per token and context token ÷ linear FLOPs per token, experts in use included and the output
    /// head left out: `4·l·H·d / (2·P)`.
    pub fn kappa(&self) -> f64 {
        let experts = self.experts.as_ref();
        let active = experts.map_or(0.0, |experts| self.layers * experts.active * experts.params);
        2.0 * self.layers * self.heads * self.head_dim / (self.linear_params + active)
    }

    /// Names that [`Model::profile`] knows.
    pub const PROFILES: [&'static str; 2] = ["qwen2-7b", "qwen3-30b-a3b"];

    /// A built-in profile.
    pub fn profile(name: &str) -> Option<Self> {
        match name {
            "qwen2-7b" => Some(Self::qwen2_7b()),
            "qwen3-30b-a3b" => Some(Self::qwen3_30b_a3b()),
            _ => None,
        }
    }

    /// Qwen2.5-7B-Instruct.
    pub fn qwen2_7b() -> Self {
        Self {
            name: "qwen2-7b".to_owned(),
            layers: 28.0,
            heads: 28.0,
            head_dim: 128.0,
            linear_params: 6.526e9,
            head_params: 0.545e9,
            kv_bytes: 57_344.0,
            weight_bytes: 15.23e9,
            overhead: 1.5e-3,
            experts: None,
            vocabulary: 152_064,
        }
    }

    /// Qwen3-30B-A3B.
    pub fn qwen3_30b_a3b() -> Self {
        Self {
            name: "qwen3-30b-a3b".to_owned(),
            layers: 48.0,
            heads: 32.0,
            head_dim: 128.0,
            linear_params: 0.906e9,
            head_params: 0.311e9,
            kv_bytes: 98_304.0,
            weight_bytes: 61.06e9,
            overhead: 3e-3,
            experts: Some(Experts {
                count: 128.0,
                active: 8.0,
                params: 4.719e6,
            }),
            vocabulary: 151_936,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_shares_are_those_of_the_notes() {
        for (model, kappa) in [(Model::qwen2_7b(), 3.08e-5), (Model::qwen3_30b_a3b(), 1.44e-4)] {
            assert!(
                (model.kappa() / kappa - 1.0).abs() < 0.01,
                "{}: {}",
                model.name,
                model.kappa()
            );
        }
    }

    #[test]
    fn profiles_are_found_by_their_own_names() {
        for name in Gpu::PROFILES {
            assert_eq!(Gpu::profile(name).map(|gpu| gpu.name).as_deref(), Some(name));
        }
        for name in Model::PROFILES {
            assert_eq!(
                Model::profile(name).map(|model| model.name).as_deref(),
                Some(name)
            );
        }
    }

    #[test]
    fn kv_capacity_is_that_of_the_notes() {
        let gpu = Gpu::h20();
        let cases = [
            (Model::qwen2_7b(), 0.90, 1.29e6),
            (Model::qwen2_7b(), 0.85, 1.20e6),
            (Model::qwen3_30b_a3b(), 0.90, 288e3),
            (Model::qwen3_30b_a3b(), 0.85, 235e3),
        ];
        for (model, utilization, tokens) in cases {
            let got = gpu.kv_tokens(&model, utilization) as f64;
            assert!(
                (got / tokens - 1.0).abs() < 0.01,
                "{} at {utilization}: {got}",
                model.name
            );
        }
    }

    #[test]
    fn weights_that_do_not_fit_leave_no_cache() {
        assert_eq!(Gpu::h20().kv_tokens(&Model::qwen3_30b_a3b(), 0.5), 0);
    }

    #[test]
    fn every_listed_profile_exists() {
        for name in Model::PROFILES {
            assert_eq!(
                Model::profile(name).map(|model| model.name).as_deref(),
                Some(name)
            );
        }
        assert_eq!(Model::profile("gpt-5"), None);
    }
}
