//! `lmetric-drain`: what a pod runs before it ends.
//!
//! | of | says | waits until |
//! |---|---|---|
//! | an engine | `POST /drain/UID` to every picker, which thereby stops choosing it | all pickers and the engine itself count 0, twice |
//! | the standalone Envoy | its own health check fails, its port closes | it counts 0 requests, twice |
//!
//! An init container copies the tool into the pod, so it asks nothing of the image that it runs in.

pub mod args;
pub mod engine;
pub mod envoy;
pub mod http;
pub mod install;
pub mod pickers;

use std::{fmt, time::Duration};

/// How often and how patiently things are asked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between two rounds.
    pub poll: Duration,
    /// For one question.
    pub answer: Duration,
    /// A picker that has been out of reach for so long is left out.
    pub reach: Duration,
    /// An Envoy stays at least so long, while nodes learn that it has gone from its Service.
    pub linger: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            answer: Duration::from_secs(2),
            reach: Duration::from_secs(5),
            linger: Duration::from_secs(5),
        }
    }
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No request is left.
    Drained,
    /// There is nobody to wait for.
    Dead,
    /// The time was over; what was left then.
    TimedOut(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drained => to.write_str("drained"),
            Self::Dead => to.write_str("nothing to drain: it does not answer any more"),
            Self::TimedOut(left) => write!(to, "drainTimeout is over: {left}"),
        }
    }
}
