//! The tool a person holds: replay a trace, report on it, explain a decision, write definitions.

pub mod client;
pub mod command;
pub mod crds;
pub mod explain;
pub mod probe;
pub mod replay;
pub mod report;
pub mod run_file;
pub mod simulate;
pub mod stats;
pub mod trace;
pub mod units;
