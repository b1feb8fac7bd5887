//! What must hold whatever happens.

pub(crate) mod ledgers;
pub(crate) mod logs;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod readiness;
pub(crate) mod restarts;

use serde::Serialize;

use crate::clock::At;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Rule {
    /// A failed request that no fault explains.
    Unexplained,
    /// The fleet did not become whole again.
    Recovery,
    /// An object too many, too few, or without owner.
    Objects,
    /// BS or Q did not return to 0.
    Ledger,
    /// Ready says something else than one request a second.
    Readiness,
    /// More memory than its bound.
    Memory,
    /// A panic in a log.
    Panic,
    /// A container was restarted for no reason.
    Restart,
    /// A fault could not be injected or undone.
    Harness,
}

/// One case of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Violation {
    /// When it was seen.
    pub(crate) at: At,
    /// What was broken.
    pub(crate) rule: Rule,
    /// How.
    pub(crate) text: String,
}
