//! The two sockets of a source: SUB for live messages, DEALER for a replay.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc};
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketEvent, SocketRecv, SocketSend, SubSocket, ZmqError, ZmqMessage};

use crate::wire::{Framed, MAX_BATCH_BYTES};

/// Why a socket is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketError {
    /// ZeroMQ says so.
    #[error(transparent)]
    Zmq(#[from] ZmqError),
    /// Nobody answered in time.
    #[error("no answer within {0:?}: check the address and that the engine publishes KV events there")]
    Silent(Duration),
    /// The other side closed the connection.
    #[error("the publisher closed the connection")]
    Closed,
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
    fn of(message: ZmqMessage) -> Self {
        let frames = message.into_vec();
        match (Framed::of(&frames), frames.last()) {
            (Some(Framed::Batch { seq, .. }), Some(payload)) => {
                // one byte more than can be decoded is enough to say that it is too long
                Self::Batch(seq, payload.slice(..payload.len().min(MAX_BATCH_BYTES + 1)))
            }
            (Some(Framed::End), _) => Self::End,
            _ => Self::Malformed,
        }
    }
}

/// Live messages.
pub(super) struct Subscription {
    socket: SubSocket,
    events: mpsc::Receiver<SocketEvent>,
}

impl Subscription {
    /// Connects and subscribes to topics that begin with `topic`.
    pub(super) async fn connect(
        endpoint: &str,
        topic: &str,
        patience: Duration,
    ) -> Result<Self, SocketError> {
        let mut socket = SubSocket::new();
        let events = socket.monitor();
        let connected = timeout(patience, async {
            socket.connect(endpoint).await?;
            socket.subscribe(topic).await
        });
        connected.await.map_err(|_| SocketError::Silent(patience))??;
        Ok(Self { socket, events })
    }

    /// The next message. A lost connection is an error, although the socket would make a new one on its own:
    /// only with a socket of our own choosing is it known to which connection a message belongs.
    /// Cancel-safe.
    pub(super) async fn receive(&mut self) -> Result<Message, SocketError> {
        loop {
            tokio::select! {
                biased;
                event = self.events.next() => match event {
                    Some(SocketEvent::Disconnected(_)) | None => return Err(SocketError::Closed),
                    Some(_) => {}
                },
                message = self.socket.recv() => return Ok(Message::of(message?)),
            }
        }
    }
}

/// One replay.
pub(super) struct Replay {
    socket: DealerSocket,
    events: mpsc::Receiver<SocketEvent>,
    patience: Duration,
}

impl Replay {
    /// Asks for everything from `from` on.
    pub(super) async fn ask(endpoint: &str, from: u64, patience: Duration) -> Result<Self, SocketError> {
        let mut socket = DealerSocket::new();
        let events = socket.monitor();
        let mut request = ZmqMessage::from(Bytes::new());
        request.push_back(Bytes::copy_from_slice(&from.to_be_bytes()));
        let asked = timeout(patience, async {
            socket.connect(endpoint).await?;
            socket.send(request).await
        });
        asked.await.map_err(|_| SocketError::Silent(patience))??;
        Ok(Self {
            socket,
            events,
            patience,
        })
    }

    /// The next message of the answer.
    pub(super) async fn receive(&mut self) -> Result<Message, SocketError> {
        let next = async {
            loop {
                tokio::select! {
                    event = self.events.next() => match event {
                        Some(SocketEvent::Disconnected(_)) | None => return Err(SocketError::Closed),
                        Some(_) => {}
                    },
                    message = self.socket.recv() => return Ok(Message::of(message?)),
                }
            }
        };
        timeout(self.patience, next)
            .await
            .map_err(|_| SocketError::Silent(self.patience))?
    }
}
