//! What became of a request.

use std::net::IpAddr;

use lmetric_testkit::{Failure, Phase};
use serde::Serialize;

use crate::clock::At;
use crate::fault::Pool;

/// One request, from its start to its end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    /// Its `x-request-id`.
    pub(crate) id: String,
    /// To whom.
    pub(crate) pool: Pool,
    /// When it was sent.
    pub(crate) began: At,
    /// When its answer was complete, or the error came.
    pub(crate) ended: At,
    /// The engine that a picker chose for it, where that is known.
    pub(crate) engine: Option<IpAddr>,
    /// What was wrong with it.
    pub(crate) failure: Option<Failure>,
}

impl Record {
    /// How far it came, if it failed.
    pub(crate) fn phase(&self) -> Option<Phase> {
        self.failure.as_ref().map(|failure| failure.phase)
    }
}
