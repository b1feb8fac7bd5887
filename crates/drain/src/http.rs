//! As much of HTTP/1.1 as three small servers need: one request on one connection, with a time for all of it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Largest answer that is read: an engine's page of metrics is the longest.
const MOST_BYTES: usize = 8 << 20;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Body, of which a part that is no UTF-8 is replaced.
    pub body: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Nobody listens: the port refused, or the connection ended before an answer.
    #[error("nobody answers: {0}")]
    Nobody(io::Error),
    /// It took too long.
    #[error("no answer in time")]
    Late,
    /// What came is no HTTP, or too long.
    #[error("the answer is no HTTP of at most {MOST_BYTES} bytes")]
    Garbled,
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Late,
            _ => Self::Nobody(error),
        }
    }
}

/// Sends a request without a body and reads the whole answer, within `time`.
pub fn ask(method: &str, address: SocketAddr, path: &str, time: Duration) -> Result<Answer, NoAnswer> {
    let deadline = Instant::now() + time;
    let mut stream = TcpStream::connect_timeout(&address, time.max(Duration::from_millis(1)))?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\nuser-agent: lmetric-drain\r\n\r\n"
    );
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(request.as_bytes())?;
    let mut received = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return match parse(&received, true)? {
                Some(answer) => Ok(answer),
                None if received.is_empty() => Err(NoAnswer::Nobody(io::ErrorKind::UnexpectedEof.into())),
                None => Err(NoAnswer::Garbled),
            };
        }
        received.extend_from_slice(&part[..count]);
        if received.len() > MOST_BYTES {
            return Err(NoAnswer::Garbled);
        }
        if let Some(answer) = parse(&received, false)? {
            return Ok(answer);
        }
    }
}

fn left(deadline: Instant) -> Result<Duration, NoAnswer> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(NoAnswer::Late),
        left => Ok(left),
    }
}

/// The answer, or `None` while some of it is missing. `ended`: nothing follows.
fn parse(received: &[u8], ended: bool) -> Result<Option<Answer>, NoAnswer> {
    let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&received[..end]).map_err(|_| NoAnswer::Garbled)?;
    let body = &received[end + 4..];
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1."))
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or(NoAnswer::Garbled)?;
    let header = |wanted: &str| {
        lines.clone().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim())
        })
    };
    let chunked = header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    let body = if chunked {
        dechunk(body)?
    } else if let Some(length) = header("content-length") {
        let length: usize = length.parse().map_err(|_| NoAnswer::Garbled)?;
        body.get(..length).map(<[u8]>::to_vec)
    } else {
        ended.then(|| body.to_vec())
    };
    Ok(body.map(|body| Answer {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
    }))
}

/// The body without its chunks' frames, or `None` while the last one is missing.
fn dechunk(mut framed: &[u8]) -> Result<Option<Vec<u8>>, NoAnswer> {
    let mut body = Vec::new();
    loop {
        let Some(end) = framed.windows(2).position(|window| window == b"\r\n") else {
            return Ok(None);
        };
        let size = std::str::from_utf8(&framed[..end])
            .ok()
            .and_then(|line| line.split(';').next())
            .and_then(|size| usize::from_str_radix(size.trim(), 16).ok())
            .filter(|size| *size <= MOST_BYTES)
            .ok_or(NoAnswer::Garbled)?;
        let rest = &framed[end + 2..];
        if size == 0 {
            return Ok(Some(body));
        }
        let Some(chunk) = rest.get(..size) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        let Some(next) = rest.get(size + 2..) else {
            return Ok(None);
        };
        framed = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Option<(u16, String)> {
        parse(text.as_bytes(), true)
            .unwrap()
            .map(|answer| (answer.status, answer.body))
    }

    #[test]
    fn a_body_ends_by_length_by_chunks_or_with_the_connection() {
        let expected = Some((200, "hello".to_owned()));
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nhello",
        ] {
            assert_eq!(whole(text), expected, "{text:?}");
        }
    }

    #[test]
    fn every_beginning_of_an_answer_is_incomplete_and_not_wrong() {
        let text = "HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        let complete = text.find("0\r\n\r\n").unwrap() + 3;
        for length in 0..text.len() {
            let answer = parse(&text.as_bytes()[..length], false).unwrap();
            assert_eq!(answer.is_some(), length >= complete, "{length}");
        }
    }

    #[test]
    fn garbage_is_an_error() {
        for text in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 abc OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ] {
            assert!(
                matches!(parse(text.as_bytes(), true), Err(NoAnswer::Garbled)),
                "{text:?}"
            );
        }
    }
}
