//! A client of ZMTP 3.0 over TCP, with a limit on everything that a peer decides.
//!
//! Of the protocol (RFC 23, and the heartbeats of RFC 37) it has what a subscriber and an asker of replays need:
//! the NULL mechanism, messages, and the commands READY, ERROR, PING and PONG. A connection holds at most one
//! message of [`MAX_MESSAGE`] octets; while that arrives, its buffer may have twice as much room.

mod fault;
mod frame;
mod handshake;
mod heartbeat;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
pub(super) use fault::Fault;
use frame::{Inbox, Received};
pub(super) use handshake::Role;
use heartbeat::{Beat, Heartbeat};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, split},
    net::TcpStream,
    task::coop::consume_budget,
    time::{Instant, sleep_until, timeout},
};

use crate::wire::MAX_BATCH_BYTES;

/// Longest frame of a message.
const MAX_FRAME: usize = MAX_BATCH_BYTES;
/// Most frames in a message; vLLM sends four at most.
const MAX_FRAMES: usize = 8;
/// Longest message, all frames together: a batch, its topic and its number.
const MAX_MESSAGE: usize = MAX_BATCH_BYTES + 64 * 1024;
/// Longest command.
const MAX_COMMAND: usize = 4 * 1024;
/// Most octets that wait to be sent. A peer that reads nothing gets no more answers to its heartbeats.
const MAX_OUT: usize = 4 * 1024;

/// A connection that shook hands.
#[derive(Debug)]
pub(super) struct Connection<S = TcpStream> {
    stream: S,
    inbox: Inbox,
    out: BytesMut,
    heartbeat: Heartbeat,
}

/// Opens the TCP connection behind `tcp://HOST:PORT`.
pub(super) async fn dial(endpoint: &str) -> Result<TcpStream, Fault> {
    let address = endpoint.strip_prefix("tcp://").ok_or(Fault::Endpoint)?;
    let (host, port) = address.rsplit_once(':').ok_or(Fault::Endpoint)?;
    if matches!(host, "" | "*") || host.contains(';') || port.parse::<u16>().is_err() {
        return Err(Fault::Endpoint);
    }
    Ok(TcpStream::connect(address).await?)
}

impl Connection {
    /// Connects, shakes hands and sends `first`, all within `patience`.
    pub(super) async fn open(
        endpoint: &str,
        role: Role,
        first: &[&[u8]],
        patience: Duration,
    ) -> Result<Self, Fault> {
        let open = async {
            let stream = dial(endpoint).await?;
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new()
                .with_time(Duration::from_secs(30))
                .with_interval(Duration::from_secs(10))
                .with_retries(3);
            SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
            Self::over(stream, role, first).await
        };
        timeout(patience, open)
            .await
            .map_err(|_| Fault::Silent(patience))?
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Shakes hands over a stream that is open and sends `first`.
    pub(super) async fn over(stream: S, role: Role, first: &[&[u8]]) -> Result<Self, Fault> {
        let mut connection = Self {
            stream,
            inbox: Inbox::default(),
            out: BytesMut::new(),
            heartbeat: Heartbeat::none(),
        };
        connection.shake_hands(role).await?;
        frame::put_message(&mut connection.out, first);
        connection.flush().await?;
        Ok(connection)
    }

    async fn shake_hands(&mut self, role: Role) -> Result<(), Fault> {
        self.out.extend_from_slice(&handshake::greeting());
        self.flush().await?;
        let minor = loop {
            if let Some(minor) = handshake::read_greeting(self.inbox.peek())? {
                break minor;
            }
            self.fill().await?;
        };
        self.inbox.skip(handshake::GREETING);
        handshake::put_ready(&mut self.out, role);
        self.flush().await?;
        loop {
            match self.inbox.take()? {
                None => self.fill().await?,
                Some(Received::Message(_)) => return Err(Fault::Broken("a message before READY")),
                Some(Received::Command(command)) => match handshake::name_and_data(&command)? {
                    (b"READY", properties) => {
                        handshake::check_ready(role, properties)?;
                        break;
                    }
                    (b"ERROR", data) => return Err(Fault::Refused(handshake::reason(data))),
                    _ => return Err(Fault::Broken("another command in place of READY")),
                },
            }
        }
        if minor >= 1 {
            self.heartbeat = Heartbeat::new(heartbeat::EVERY, heartbeat::GRACE);
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        match self.inbox.fill(&mut self.stream).await? {
            0 => Err(Fault::Closed),
            _ => Ok(()),
        }
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        Ok(self.stream.write_all_buf(&mut self.out).await?)
    }

    /// The frames of the next message, at least one. Cancel-safe; an error is final.
    pub(super) async fn receive(&mut self) -> Result<Vec<Bytes>, Fault> {
        loop {
            // many small messages may have arrived in one piece: others get their turn between them
            consume_budget().await;
            match self.inbox.take()? {
                Some(Received::Message(frames)) => return Ok(frames),
                Some(Received::Command(command)) => self.obey(&command)?,
                None => self.exchange().await?,
            }
        }
    }

    /// Reads, writes, or waits for the heartbeat: whatever can be done first. What has arrived is read before
    /// a peer is called dead.
    async fn exchange(&mut self) -> Result<(), Fault> {
        let (mut reader, mut writer) = split(&mut self.stream);
        let due = self.heartbeat.due();
        tokio::select! {
            biased;
            read = self.inbox.fill(&mut reader) => {
                if read? == 0 {
                    return Err(Fault::Closed);
                }
                self.heartbeat.heard();
            }
            written = writer.write_buf(&mut self.out), if !self.out.is_empty() => {
                written?;
                self.heartbeat.sent();
            }
            () = until(due) => {
                match self.heartbeat.beat() {
                    // two octets of TTL: how long we may be silent; 0 is for ever
                    Beat::Ask => self.put_command("PING", &[0, 0]),
                    Beat::Dead(silence) => return Err(Fault::Dead(silence)),
                }
            }
        }
        Ok(())
    }

    fn obey(&mut self, command: &Bytes) -> Result<(), Fault> {
        match handshake::name_and_data(command)? {
            // after the TTL, at most 16 octets that PONG brings back
            (b"PING", data) => match data.get(2..) {
                Some(context) => self.put_command("PONG", &context[..context.len().min(16)]),
                None => return Err(Fault::Broken("a PING without a TTL")),
            },
            (b"ERROR", data) => return Err(Fault::Refused(handshake::reason(data))),
            _ => {}
        }
        Ok(())
    }

    fn put_command(&mut self, name: &str, data: &[u8]) {
        if self.out.len() < MAX_OUT {
            frame::put_command(&mut self.out, name, data);
        }
    }
}

/// Waits for a moment, or for ever.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
