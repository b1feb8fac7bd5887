//! The crate against messages that real engines sent, and against publishers in this process.

#![expect(clippy::unwrap_used, reason = "in a test a step that fails is the failure")]

mod captures;
mod decode;
mod encode;
mod holders;
mod hostile;
mod late;
mod plain;
mod protocol;
mod publisher;
mod replays;
mod rules;
mod streams;
mod transport;
