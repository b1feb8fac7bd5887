//! What is asked of a pick, and what it answers.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use lmetric_prefix::{BlockSize, Chain};

use crate::{EndpointId, ReservationId};

/// What a request's key chain must be computed for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpaceSpec {
    /// Tokenizer group.
    pub group: Arc<str>,
    /// Tokens per block.
    pub block_size: BlockSize,
}

/// One distinct prompt of a request.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// L, in tokens.
    pub tokens: u32,
    /// Its full blocks, once for each distinct key space among the endpoints (at most four). A chain may be
    /// shorter than `tokens / block_size` (multimodal: the match stops at the first placeholder).
    pub chains: Vec<(SpaceSpec, Arc<Chain>)>,
}

/// Endpoints that the proxy allows: an address, or every port of an IP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subset(pub Vec<(IpAddr, Option<u16>)>);

impl Subset {
    /// Whether `address` is named; an entry names all ranks behind its address.
    pub fn allows(&self, address: SocketAddr) -> bool {
        self.0
            .iter()
            .any(|(ip, port)| *ip == address.ip() && port.is_none_or(|port| port == address.port()))
    }
}

/// One request to place.
#[derive(Clone, Debug)]
pub struct PickRequest<'a> {
    /// For `/debug/decisions` and `lmetric explain`.
    pub request_id: &'a str,
    /// Model name asked for, for the decision ring.
    pub model: &'a str,
    /// Distinct prompts. Empty: placed by load only.
    pub prompts: &'a [Prompt],
    /// Engine requests that this HTTP request becomes (prompts × n), at least 1.
    pub weight: u32,
    /// Token counts are estimates; Q falls by rate.
    pub estimated: bool,
    /// Subset hint of the proxy. An empty list allows nobody.
    pub subset: Option<&'a Subset>,
    /// LoRA adapter asked for; only endpoints able to serve it are candidates.
    pub lora: Option<&'a str>,
    /// Hash of the session, for policies that stick to one.
    pub session: Option<u64>,
}

/// The choice for one request; its load is already reserved.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// To release later.
    pub reservation: ReservationId,
    /// Chosen endpoint.
    pub endpoint: EndpointId,
    /// Its address.
    pub address: SocketAddr,
    /// Its rank, when several share the address.
    pub rank: Option<u16>,
    /// Predicted hit, tokens, over all prompts.
    pub hit_tokens: u64,
    /// Uncached prompt tokens charged to the endpoint.
    pub charged_tokens: u64,
}

/// Why nobody can serve the request (503).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEndpoint {
    /// No endpoint is ready.
    #[error("no endpoint is ready")]
    NoneReady,
    /// The proxy's subset names none of the ready ones.
    #[error("none of the {ready} ready endpoints is in the gateway's subset")]
    SubsetEmpty {
        /// How many are ready.
        ready: usize,
    },
    /// No ready endpoint can serve the adapter.
    #[error("no ready endpoint can serve the adapter {adapter:?}")]
    AdapterUnknown {
        /// Adapter asked for.
        adapter: String,
    },
    /// The ledger can follow no further request.
    #[error("{open} requests are open, more than this picker can follow")]
    LedgerFull {
        /// How many are open.
        open: usize,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Normally (whatever 2xx–4xx).
    Done,
    /// The client left.
    ClientAbort,
    /// The engine answered 5xx.
    ServerError,
    /// Reset before response headers, or ended without `:status`.
    Unreachable,
    /// The picker lost sight of it (stream reset in a drain and the like); counts for nobody.
    Unknown,
}

impl Outcome {
    /// Its place in [`crate::Counters::released`].
    pub fn index(self) -> usize {
        match self {
            Self::Done => 0,
            Self::ClientAbort => 1,
            Self::ServerError => 2,
            Self::Unreachable => 3,
            Self::Unknown => 4,
        }
    }
}
