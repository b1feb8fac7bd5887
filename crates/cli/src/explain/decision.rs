//! The picker's decisions as `/debug/decisions` writes them.

use lmetric_scheduler::Decision;
use serde::Deserialize;

/// What the admin endpoint answers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Decisions {
    /// The picker's clock, nanoseconds since it began.
    #[serde(default)]
    pub now: Option<u64>,
    /// Newest first.
    pub decisions: Vec<Decision>,
}
