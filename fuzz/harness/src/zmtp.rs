//! What a publisher sends: greeting, READY and messages.
//!
//! An input: an octet with the kind of socket (bit 0) and the size of pieces (the rest; 0 is 64 KiB), then all octets
//! of the connection.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use lmetric_kvevents::{transport::hear, wire::Framed};
use tokio::io::{AsyncRead, ReadBuf, join, sink};

use crate::assert_one_line;

/// Octets that arrive in pieces.
struct Pieces<'i> {
    rest: &'i [u8],
    piece: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let taken = self.rest.len().min(self.piece).min(room.remaining());
        let (now, later) = self.rest.split_at(taken);
        room.put_slice(now);
        self.rest = later;
        Poll::Ready(Ok(()))
    }
}

/// Listens to it in these pieces and in one: the same comes of it, and no more than arrived.
pub fn run(input: &[u8]) {
    let Some((&how, octets)) = input.split_first() else {
        return;
    };
    let replay = how & 1 != 0;
    let piece = match usize::from(how >> 1) {
        0 => 64 * 1024,
        piece => piece,
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
    else {
        return;
    };
    let listen = |piece| {
        let stream = join(Pieces { rest: octets, piece }, sink());
        runtime.block_on(hear(stream, replay))
    };
    let heard = listen(piece);
    let at_once = listen(usize::MAX);
    assert_eq!(
        heard.messages, at_once.messages,
        "it depends on how octets arrive"
    );
    assert_eq!(heard.fault, at_once.fault);
    assert_one_line(&heard.fault);
    let said: usize = heard.messages.iter().flatten().map(bytes::Bytes::len).sum();
    assert!(said <= octets.len(), "{said} octets of {}", octets.len());
    for frames in &heard.messages {
        assert!((1..=8).contains(&frames.len()), "{} frames", frames.len());
        let payload = frames.last().map_or(&[][..], |frame| frame);
        match Framed::of(frames) {
            Some(Framed::Batch { payload: found, .. }) => assert_eq!(found, payload),
            Some(Framed::End) => assert!(payload.is_empty()),
            None => {}
        }
    }
}
