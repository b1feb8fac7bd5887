//! The built binaries behind a real Envoy, with the configurations that are shipped.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod burst;
mod ejection;
mod endings;
mod foreign;
mod hints;
mod late;
mod no_endpoint;
mod no_picker;
mod pages;
mod record;
mod requests;
mod restart;
mod support;
mod template;
mod tools;
mod virtual_time;
