//! The frames of a message.
//!
//! Live: `[topic, seq, payload]`. A replay, as a DEALER sees it: `["", topic, seq, payload]…` and at its end
//! `["", "", ff×8, ""]` (vLLM ≥ 0.26), or the same without the topic frame (≤ 0.25). What all have in common:
//! the number is the last but one, the payload the last, and an empty payload ends a replay.

/// A message whose frames were told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed<'p> {
    /// One batch.
    Batch {
        /// Its sequence number.
        seq: u64,
        /// Its MessagePack bytes.
        payload: &'p [u8],
    },
    /// The replay is over.
    End,
}

impl<'p> Framed<'p> {
    /// `None` when the frames are no such message.
    pub fn of(frames: &'p [impl AsRef<[u8]>]) -> Option<Self> {
        let [.., seq, payload] = frames else { return None };
        let seq = u64::from_be_bytes(seq.as_ref().try_into().ok()?);
        match payload.as_ref() {
            [] => Some(Self::End),
            _ if seq == u64::MAX => None,
            payload => Some(Self::Batch { seq, payload }),
        }
    }
}
