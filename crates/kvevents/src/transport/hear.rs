//! What a publisher's octets come to, without a socket: for fuzzing.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use super::zmtp::{Connection, Role};

/// Messages up to the fault that ended the connection.
#[derive(Debug)]
pub struct Heard {
    /// The frames of each message, at least one.
    pub messages: Vec<Vec<Bytes>>,
    /// Why no more came, in words.
    pub fault: String,
}

/// Listens as a subscriber, or as one who asks for a replay, until the stream is over or breaks the protocol.
pub async fn hear(stream: impl AsyncRead + AsyncWrite + Unpin, replay: bool) -> Heard {
    let (role, first): (_, &[&[u8]]) = if replay {
        (Role::Dealer, &[b"", &[0; 8]])
    } else {
        (Role::Sub, &[b"\x01"])
    };
    let mut messages = Vec::new();
    let fault = match Connection::over(stream, role, first).await {
        Err(fault) => fault,
        Ok(mut connection) => loop {
            match connection.receive().await {
                Ok(frames) => messages.push(frames),
                Err(fault) => break fault,
            }
        },
    };
    Heard {
        messages,
        fault: fault.to_string(),
    }
}
