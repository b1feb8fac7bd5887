//! What can be wrong with a connection.

use std::time::Duration;

use super::{MAX_FRAMES, MAX_MESSAGE};

/// Why a connection is of no use any more, or never came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The endpoint is no address that can be dialled.
    #[error(
        "only tcp://HOST:PORT can be reached: let the engine publish on tcp://*:PORT and name its host here"
    )]
    Endpoint,
    /// The operating system says so.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Nobody answered in time.
    #[error("no answer within {0:?}: check the address and that the engine publishes KV events there")]
    Silent(Duration),
    /// The other side closed the connection.
    #[error("the publisher closed the connection")]
    Closed,
    /// A heartbeat brought no answer.
    #[error("the publisher gave no sign of life within {0:?}")]
    Dead(Duration),
    /// Not a greeting.
    #[error("this is no ZeroMQ socket: check that the port is the one of the engine's KV events")]
    NotZmtp,
    /// Older than 3.0.
    #[error("the publisher speaks version {0} of ZeroMQ's protocol: it needs libzmq 4 or later")]
    Version(u8),
    /// Not NULL.
    #[error("the publisher wants the security mechanism \"{0}\": KV events are read without one (NULL)")]
    Mechanism(String),
    /// A socket of the wrong kind.
    #[error(
        "this is a {theirs} socket where a {wanted} is needed: check that the ports of events and replay are not swapped"
    )]
    Peer {
        /// What it is.
        theirs: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// An ERROR command.
    #[error("the publisher refused: \"{0}\"")]
    Refused(String),
    /// A frame over its limit.
    #[error(
        "a frame of {announced} bytes is longer than {limit}: lower the engine's --max-num-batched-tokens"
    )]
    LongFrame {
        /// What the peer announced.
        announced: u64,
        /// What is read at most.
        limit: usize,
    },
    /// Too many frames in a message.
    #[error(
        "a message has more than {MAX_FRAMES} frames: check that the endpoint is a vLLM KV-event publisher"
    )]
    ManyFrames,
    /// Too long a message.
    #[error("a message is longer than {MAX_MESSAGE} bytes: lower the engine's --max-num-batched-tokens")]
    LongMessage,
    /// Octets that the protocol does not know.
    #[error("the publisher broke ZeroMQ's protocol: {0}")]
    Broken(&'static str),
}
