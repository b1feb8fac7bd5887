//! What a pick, an event and a holder cost: the picker's own code, without its sockets, under one workload; and what a request
//! costs through a real Envoy ([`gateway`]), and whether all stays as it is for half an hour ([`soak`]).

pub mod cache;
pub mod fleet;
pub mod gateway;
pub mod hash;
pub mod ingest;
pub mod payload;
pub mod picks;
pub mod prose;
pub mod results;
pub mod soak;
pub mod tokens;
pub mod usage;
pub mod workload;
