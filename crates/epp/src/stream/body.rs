//! A request body as it arrives: one message is kept as it is, several are joined once.

use bytes::{Bytes, BytesMut};

/// The body is longer than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// The body so far.
#[derive(Debug)]
pub(super) enum Collector {
    One(Bytes),
    Several(BytesMut),
}

impl Default for Collector {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl Collector {
    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Several(bytes) => bytes.len(),
        }
    }

    /// Adds a message; `expected` is the length that the client announced, if it did.
    pub(super) fn push(&mut self, more: Bytes, expected: Option<u64>, limit: usize) -> Result<(), TooLarge> {
        if self.len() + more.len() > limit {
            return Err(TooLarge);
        }
        match self {
            _ if more.is_empty() => {}
            Self::One(bytes) if bytes.is_empty() => *bytes = more,
            Self::One(bytes) => {
                let length = bytes.len() + more.len();
                let announced = expected.map_or(0, |expected| expected.min(limit as u64) as usize);
                let mut joined = BytesMut::with_capacity(announced.max(2 * length));
                joined.extend_from_slice(bytes);
                joined.extend_from_slice(&more);
                *self = Self::Several(joined);
            }
            Self::Several(bytes) => bytes.extend_from_slice(&more),
        }
        Ok(())
    }

    /// The whole body; the collector is empty afterwards.
    pub(super) fn take(&mut self) -> Bytes {
        match std::mem::take(self) {
            Self::One(bytes) => bytes,
            Self::Several(bytes) => bytes.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_not_copied() {
        let message = Bytes::from(vec![7; 1000]);
        let mut body = Collector::default();
        body.push(Bytes::new(), None, 1000).unwrap();
        body.push(message.clone(), None, 1000).unwrap();
        body.push(Bytes::new(), None, 1000).unwrap();
        assert_eq!(body.take().as_ptr(), message.as_ptr());
        assert_eq!(body.len(), 0);
    }

    #[test]
    fn several_messages_are_joined_up_to_the_limit() {
        let mut body = Collector::default();
        for part in [&b"ab"[..], b"c", b"", b"def"] {
            body.push(Bytes::from_static(part), Some(u64::MAX), 6).unwrap();
        }
        assert_eq!(body.push(Bytes::from_static(b"g"), None, 6), Err(TooLarge));
        assert_eq!(body.take(), "abcdef");
    }
}
