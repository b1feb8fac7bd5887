//! The scheduler's rules, seen from outside: a virtual clock, seeded random numbers and modelled engines.
#![cfg(not(feature = "shuttle"))]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

mod answers;
mod bench;
mod burst;
mod candidates;
mod conservation;
mod ejection;
mod foreign;
mod hotspot;
mod overlay;
mod progress;
mod quiet;
mod recent;
mod shadow;
