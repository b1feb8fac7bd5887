//! Figures that vLLM shows on its metrics page, and the truth that it does not show.

/// Sums since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps.
    pub steps: u64,
    /// Prompt tokens of requests whose prefill ended.
    pub prompt_tokens: u64,
    /// Of these, tokens taken from the cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Prompt tokens really computed, recomputation after a preemption included.
    pub prefilled_tokens: u64,
    /// Tokens looked up in the prefix cache at admission.
    pub prefix_queries: u64,
    /// Of these, tokens found.
    pub prefix_hits: u64,
    /// Requests thrown out for want of blocks.
    pub preemptions: u64,
    /// Requests that ended with all their tokens.
    pub finished: u64,
    /// Requests that were aborted.
    pub aborted: u64,
}

/// The state at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests in the batch.
    pub running: u32,
    /// Requests queued.
    pub waiting: u32,
    /// Prompt tokens of running and waiting requests that are not computed yet.
    pub uncomputed_tokens: u64,
    /// Share of blocks in use by requests.
    pub kv_usage: f64,
}
