//! The engines as their clients meet them.

#![expect(clippy::unwrap_used, reason = "a test that gets no answer fails")]

mod events;
mod faults;
mod process;
mod shapes;
mod streams;
mod support;
mod timing;
mod wire;
