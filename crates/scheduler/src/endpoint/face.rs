//! What a pick needs to know of an endpoint, kept from pick to pick while nothing has touched it.

use std::net::SocketAddr;

use super::{Endpoint, SpaceId};
use crate::policy::Candidate;

/// An endpoint as a pick sees it before it looks at the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Face {
    /// Without hits and backlog, which are the request's.
    pub(crate) candidate: Candidate,
    pub(crate) address: SocketAddr,
    pub(crate) space: Option<SpaceId>,
    pub(crate) ready: bool,
    /// Whether its open requests claim blocks.
    pub(crate) claims: bool,
    /// Requests stay away, or did so a moment ago: ask the endpoint.
    pub(crate) maybe_out: bool,
    /// Time alone changes it: work that a clock ends, an ejection, queued work whose rate is measured, an estimate.
    pub(crate) restless: bool,
}

impl Face {
    /// The endpoint now; `mean_prompt` are the tokens that a foreign waiting request counts.
    pub(crate) fn of(endpoint: &Endpoint, mean_prompt: f64) -> Self {
        let waiting = endpoint.foreign.waiting();
        let maybe_out = endpoint.ejection.until().is_some();
        let measured = endpoint.load.q > endpoint.load.by_clock;
        Self {
            candidate: Candidate {
                slot: endpoint.id.slot,
                identity: endpoint.identity,
                hit: 0,
                queued: endpoint.queued(mean_prompt),
                batch: endpoint.batch(),
                waiting: endpoint.load.waiting + u64::from(waiting),
                prefilling: endpoint.prefilling(),
                resident: endpoint.load.tokens,
                pairs: endpoint.load.pairs,
                kv_tokens: endpoint.kv_tokens,
                kv_use: endpoint.kv_use,
                backlog: (0, 0),
            },
            address: endpoint.spec.address,
            space: endpoint.space,
            ready: endpoint.ready,
            claims: !endpoint.claims.is_empty(),
            maybe_out,
            restless: maybe_out || measured || waiting > 0 || endpoint.clock.len() > 0,
        }
    }
}
