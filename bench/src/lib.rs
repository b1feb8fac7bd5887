//! What a pick, an event and a holder cost: the picker's own code, without its sockets, under one workload.

pub mod fleet;
pub mod hash;
pub mod ingest;
pub mod payload;
pub mod picks;
pub mod prose;
pub mod results;
pub mod tokens;
pub mod workload;
