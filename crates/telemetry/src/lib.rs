//! What every lmetric process needs besides its work: logs whose filter changes at run time, a metrics
//! registry, an admin server, a shutdown that waits for the tasks, and a command line that is refused in one line.
//!
//! Nothing here knows what the process does. Histograms are our own ([`Histogram`]): the library's takes a
//! lock for every observation, which the pick path must not.

mod admin;
pub mod command_line;
mod histogram;
mod logs;
mod metrics;
mod tasks;

pub use admin::{Admin, Readiness};
pub use histogram::{Histogram, Timer};
pub use logs::{LogError, Logs};
pub use metrics::{CONTENT_TYPE, encode, registry};
pub use tasks::{Ended, Tasks, termination};

/// For the metrics that a process defines.
pub use prometheus_client;
