//! Objects of other projects, as far as the operator reads or writes them.
//!
//! The published crates for these lag behind kube, and each would bring thousands of generated lines. What is not
//! here is neither read nor written; server-side apply leaves it to its owner. No schema is derived: these
//! definitions are installed by their own projects.

pub mod envoy_gateway;
pub mod gateway;
pub mod gie;
pub mod istio;
pub mod prometheus;
