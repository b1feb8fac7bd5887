//! What CEL cannot say about a pool.

use super::spec::InferencePool;

/// Why a pool cannot be built: the field, what is wrong with it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}; {remedy}")]
pub struct Invalid {
    /// Path of the field, such as `spec.placement.affinity`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// Checks `pool`; all that is wrong with it, in the order of its fields.
pub fn validate(pool: &InferencePool) -> Result<(), Vec<Invalid>> {
    let _ = pool;
    Ok(())
}
