//! The two sockets of a source: SUB for live messages, DEALER for a replay.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::timeout;

use super::zmtp::{self, Connection, Fault, Role};
use crate::wire::Framed;

/// Why the socket of a publisher is of no use any more.
#[derive(Debug, thiserror::Error)]
#[error("{peer}: {fault}")]
pub(super) struct SocketError {
    peer: Arc<str>,
    fault: Fault,
}

impl SocketError {
    pub(super) fn new(peer: &str, fault: Fault) -> Self {
        Self {
            peer: Arc::from(peer),
            fault,
        }
    }
}

/// One message: what both framings have in common are its last two frames.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// Number and payload.
    Batch(u64, Bytes),
    /// A replay has no more to come.
    End,
    /// Anything else.
    Malformed,
}

impl Message {
    fn of(frames: &[Bytes]) -> Self {
        match (Framed::of(frames), frames.last()) {
            (Some(Framed::Batch { seq, .. }), Some(payload)) => Self::Batch(seq, payload.clone()),
            (Some(Framed::End), _) => Self::End,
            _ => Self::Malformed,
        }
    }
}

/// Whether anything listens at an endpoint.
pub(super) async fn knock(endpoint: &str, patience: Duration) -> Result<(), SocketError> {
    let knocked = timeout(patience, zmtp::dial(endpoint)).await;
    match knocked.unwrap_or(Err(Fault::Silent(patience))) {
        Ok(_) => Ok(()),
        Err(fault) => Err(SocketError::new(endpoint, fault)),
    }
}

/// Live messages.
pub(super) struct Subscription {
    peer: Arc<str>,
    connection: Connection,
}

impl Subscription {
    /// Connects and subscribes to topics that begin with `topic`.
    pub(super) async fn connect(
        endpoint: &str,
        topic: &str,
        patience: Duration,
    ) -> Result<Self, SocketError> {
        // ZMTP 3.0 subscribes by a message: one octet, then the topic
        let subscribe = [b"\x01", topic.as_bytes()].concat();
        let opened = Connection::open(endpoint, Role::Sub, &[&subscribe], patience).await;
        Ok(Self {
            connection: opened.map_err(|fault| SocketError::new(endpoint, fault))?,
            peer: Arc::from(endpoint),
        })
    }

    /// The next message. A lost connection is an error and not made anew: only so is it known to which connection
    /// a message belongs. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<Message, SocketError> {
        match self.connection.receive().await {
            Ok(frames) => Ok(Message::of(&frames)),
            Err(fault) => Err(SocketError::new(&self.peer, fault)),
        }
    }
}

/// One replay.
pub(super) struct Replay {
    peer: Arc<str>,
    connection: Connection,
    patience: Duration,
}

impl Replay {
    /// Asks for everything from `from` on.
    pub(super) async fn ask(endpoint: &str, from: u64, patience: Duration) -> Result<Self, SocketError> {
        let request: [&[u8]; 2] = [b"", &from.to_be_bytes()];
        let opened = Connection::open(endpoint, Role::Dealer, &request, patience).await;
        Ok(Self {
            connection: opened.map_err(|fault| SocketError::new(endpoint, fault))?,
            peer: Arc::from(endpoint),
            patience,
        })
    }

    /// The next message of the answer.
    pub(super) async fn receive(&mut self) -> Result<Message, SocketError> {
        let received = timeout(self.patience, self.connection.receive()).await;
        match received.unwrap_or(Err(Fault::Silent(self.patience))) {
            Ok(frames) => Ok(Message::of(&frames)),
            Err(fault) => Err(SocketError::new(&self.peer, fault)),
        }
    }
}
