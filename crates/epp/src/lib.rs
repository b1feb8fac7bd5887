//! The endpoint picker: an Envoy ext-proc server that sends each request to the engine LMetric picks.

pub mod clock;
pub mod guard;
pub mod refusal;
pub mod request;
