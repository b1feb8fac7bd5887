//! Frames of ZMTP 3.0 (RFC 23): a flag octet, a length of one or of eight octets, the body.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{Fault, MAX_COMMAND, MAX_FRAME, MAX_FRAMES, MAX_MESSAGE};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Most octets taken from a connection at once.
pub(super) const CHUNK: usize = 64 * 1024;
/// Least room for what a connection may bring next.
const SPARE: usize = 16 * 1024;

/// What frames make up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The frames of one message, at least one.
    Message(Vec<Bytes>),
    /// The body of a command.
    Command(Bytes),
}

/// What arrived and was not taken yet. Holds less than one message and one [`CHUNK`]; its room grows with what has
/// arrived, never with what a peer announces.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    arrived: BytesMut,
    /// Frames of a message whose last one is still to come.
    frames: Vec<Bytes>,
    /// Octets in `frames`.
    octets: usize,
}

/// A header: what follows it, and how many octets it has itself.
#[derive(Clone, Copy, Debug)]
struct Header {
    flags: u8,
    octets: usize,
    announced: u64,
}

impl Inbox {
    /// Waits for at most [`CHUNK`] octets more; 0 when there are no more to come. Cancel-safe.
    pub(super) async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<usize> {
        self.arrived.reserve(SPARE);
        stream.read_buf(&mut (&mut self.arrived).limit(CHUNK)).await
    }

    /// What has arrived, in front of any frame.
    pub(super) fn peek(&self) -> &[u8] {
        &self.arrived
    }

    /// Steps over what [`Inbox::peek`] showed.
    pub(super) fn skip(&mut self, octets: usize) {
        self.arrived.advance(octets);
    }

    /// The next message or command; `None` until more has arrived. An error is final.
    pub(super) fn take(&mut self) -> Result<Option<Received>, Fault> {
        while let Some(header) = self.header()? {
            let octets = self.check(header)?;
            if self.arrived.len() < header.octets + octets {
                break;
            }
            self.arrived.advance(header.octets);
            let body = self.arrived.split_to(octets).freeze();
            if octets > CHUNK {
                // little is left behind a long frame; do not keep the room that the frame took
                self.arrived = BytesMut::from(&self.arrived[..]);
            }
            if header.flags & COMMAND != 0 {
                return Ok(Some(Received::Command(body)));
            }
            self.octets += octets;
            self.frames.push(body);
            if header.flags & MORE == 0 {
                self.octets = 0;
                return Ok(Some(Received::Message(std::mem::take(&mut self.frames))));
            }
        }
        Ok(None)
    }

    fn header(&self) -> Result<Option<Header>, Fault> {
        let Some((&flags, rest)) = self.arrived.split_first() else {
            return Ok(None);
        };
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
            return Err(Fault::Broken("flags that no frame has"));
        }
        let (octets, announced) = if flags & LONG == 0 {
            (2, rest.first().map(|&short| u64::from(short)))
        } else {
            (9, rest.first_chunk().map(|&long| u64::from_be_bytes(long)))
        };
        Ok(announced.map(|announced| Header {
            flags,
            octets,
            announced,
        }))
    }

    /// The length of a body that is within all limits.
    fn check(&self, header: Header) -> Result<usize, Fault> {
        let Header { flags, announced, .. } = header;
        let limit = if flags & COMMAND == 0 {
            MAX_FRAME
        } else {
            MAX_COMMAND
        };
        let octets = usize::try_from(announced)
            .ok()
            .filter(|&octets| octets <= limit)
            .ok_or(Fault::LongFrame { announced, limit })?;
        if flags & COMMAND == 0 {
            if self.frames.len() == MAX_FRAMES {
                return Err(Fault::ManyFrames);
            }
            if self.octets + octets > MAX_MESSAGE {
                return Err(Fault::LongMessage);
            }
        }
        Ok(octets)
    }

    /// Octets of memory in use, at most.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.arrived.capacity() + self.octets
    }
}

/// Appends a message to `out`.
pub(super) fn put_message(out: &mut BytesMut, frames: &[&[u8]]) {
    for (at, frame) in frames.iter().enumerate() {
        let more = if at + 1 < frames.len() { MORE } else { 0 };
        put_frame(out, more, &[frame]);
    }
}

/// Appends a command to `out`: its name and its data.
pub(super) fn put_command(out: &mut BytesMut, name: &str, data: &[u8]) {
    put_frame(out, COMMAND, &[&[name.len() as u8], name.as_bytes(), data]);
}

fn put_frame(out: &mut BytesMut, flags: u8, parts: &[&[u8]]) {
    let octets: usize = parts.iter().map(|part| part.len()).sum();
    if let Ok(short) = u8::try_from(octets) {
        out.put_slice(&[flags, short]);
    } else {
        out.put_u8(flags | LONG);
        out.put_u64(octets as u64);
    }
    for part in parts {
        out.put_slice(part);
    }
}
