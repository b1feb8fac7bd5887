//! One ext-proc stream: the protocol with the gateway, for one HTTP exchange.
//!
//! `exchange` is the pure state machine; `driver` runs it on a gRPC stream. `replies` writes what is sent,
//! `context` and `body` read what comes, `watch` looks at answers that pass by.

mod body;
mod conformance;
mod context;
mod driver;
mod exchange;
mod replies;
mod watch;

pub use context::BodyMode;
pub use driver::{Driver, Limits, Stats};
pub use replies::{DESTINATION, Destination, LOAD_BALANCER, RANK};
