//! What a policy may ask about an engine: how long a step would take. The scheduler knows no engine; whoever builds it
//! passes a model in.

use std::{fmt, ops::Deref, sync::Arc};

/// One request's share of prefill in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillChunk {
    /// Tokens computed in this step.
    pub tokens: u32,
    /// Tokens before them, cached or computed earlier.
    pub before: u32,
}

/// Step times of one engine.
pub trait StepModel: Send + Sync {
    /// Seconds of a step that computes `chunks` and one token for each of `decodes` requests, which attend to
    /// `decode_context` tokens together.
    fn step_seconds(&self, chunks: &[PrefillChunk], decodes: u32, decode_context: u64) -> f64;

    /// Most tokens in a step (`max_num_batched_tokens`).
    fn most_tokens(&self) -> u32;

    /// κ: attention per token and context token, in units of a token's linear work.
    fn kappa(&self) -> f64;
}

/// A [`StepModel`] to share. Two are equal when they are the same one.
#[derive(Clone)]
pub struct EngineModel(Arc<dyn StepModel>);

impl EngineModel {
    /// Wraps a model.
    pub fn new(model: impl StepModel + 'static) -> Self {
        Self(Arc::new(model))
    }
}

impl Deref for EngineModel {
    type Target = dyn StepModel;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for EngineModel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for EngineModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineModel({} tokens a step)", self.most_tokens())
    }
}
