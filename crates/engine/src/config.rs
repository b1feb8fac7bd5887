//! What vLLM's flags say.

use serde::{Deserialize, Serialize};

use crate::hardware::{Gpu, Model};

/// One engine. The defaults are vLLM's, but for what the paper sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    /// GPU.
    pub gpu: Gpu,
    /// Model.
    pub model: Model,
    /// Tokens per block.
    pub block_size: u32,
    /// KV blocks, one of which vLLM keeps for itself (`num_gpu_blocks`).
    pub num_gpu_blocks: u32,
    /// Most requests in a step.
    pub max_num_seqs: u32,
    /// Most tokens in a step.
    pub max_num_batched_tokens: u32,
    /// Whether blocks are shared between requests, and events made.
    pub enable_prefix_caching: bool,
    /// Admit a request only when its whole prompt fits, not just its first chunk
    /// (`scheduler_reserve_full_isl`).
    pub reserve_full_prompt: bool,
}

impl EngineConfig {
    /// Block size 16, 256 sequences, 8,192 tokens, and as many blocks as fit at `utilization`.
    pub fn new(gpu: Gpu, model: Model, utilization: f64) -> Self {
        let block_size = 16;
        let blocks = gpu.kv_tokens(&model, utilization) / u64::from(block_size);
        Self {
            gpu,
            model,
            block_size,
            num_gpu_blocks: blocks.min(u64::from(u32::MAX)) as u32,
            max_num_seqs: 256,
            max_num_batched_tokens: 8192,
            enable_prefix_caching: true,
            reserve_full_prompt: true,
        }
    }

    /// Blocks that requests can use.
    pub fn usable_blocks(&self) -> u32 {
        self.num_gpu_blocks.saturating_sub(1)
    }
}
