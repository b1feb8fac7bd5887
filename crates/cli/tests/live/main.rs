//! The commands against servers in this process.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod explain;
mod replay;
mod report;
mod support;
