//! The ledger, the policies, the hotspot detector and `pick`: choose and reserve in one atomic step.
//!
//! Sync; no I/O; the clock ([`Time`]) and the random numbers are passed in, so the simulator and the
//! picker run the same code.
//!
//! INTERFACE SKELETON: the owner of `scheduler` fills it in and splits it into modules.

mod api;

pub use api::*;
