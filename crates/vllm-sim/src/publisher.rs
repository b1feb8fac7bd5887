//! KV events of one rank on the network: a PUB socket, and a ROUTER that replays the last batches.
//!
//! As in vLLM a batch gets its sequence number when it is sent, a slow subscriber loses messages and never
//! holds the engine up, and a replay begins at the oldest batch that is kept.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use crate::args::EventFormat;

/// Batches that may wait for the publisher (`max_queue_size`).
const QUEUE: usize = 100_000;
/// Replays served at once per rank; more wait.
const REPLAYS: usize = 4;

/// How batches are framed and kept.
#[derive(Clone, Debug)]
pub struct Framing {
    /// Map format has a topic frame in replays, array format has none.
    pub format: EventFormat,
    /// Topic.
    pub topic: Bytes,
    /// Batches kept.
    pub buffer_steps: usize,
}

/// Both sockets of one rank, bound.
#[derive(Debug)]
pub struct Sockets {
    /// Events.
    pub events: TcpListener,
    /// Replay.
    pub replay: TcpListener,
}

impl Sockets {
    /// Where they listen.
    pub fn addresses(&self) -> std::io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.events.local_addr()?, self.replay.local_addr()?))
    }
}

#[derive(Debug)]
struct Batch {
    due: Instant,
    payload: Bytes,
    dropped: bool,
}

/// Sends batches of one rank; closed when dropped.
#[derive(Debug)]
pub struct Publisher {
    batches: mpsc::Sender<Batch>,
    cancel: CancellationToken,
    lost: u64,
}

#[derive(Debug)]
struct Ring {
    next_seq: u64,
    kept: VecDeque<(u64, Bytes)>,
    capacity: usize,
}

impl Ring {
    fn push(&mut self, payload: Bytes) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.kept.len() == self.capacity {
            self.kept.pop_front();
        }
        self.kept.push_back((seq, payload));
        seq
    }

    fn since(&self, seq: u64) -> Vec<(u64, Bytes)> {
        let from = self.kept.partition_point(|(kept, _)| *kept < seq);
        self.kept.range(from..).cloned().collect()
    }
}

impl Publisher {
    /// Starts serving on sockets that are bound already. Within a tokio runtime.
    pub async fn start(
        sockets: Sockets,
        framing: Framing,
        tasks: &TaskTracker,
    ) -> Result<Self, zeromq::ZmqError> {
        let ring = Arc::new(Mutex::new(Ring {
            next_seq: 0,
            kept: VecDeque::new(),
            capacity: framing.buffer_steps,
        }));
        let mut events = PubSocket::new();
        events.bind_listener(sockets.events).await?;
        let mut replay = RouterSocket::new();
        replay.bind_listener(sockets.replay).await?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let cancel = CancellationToken::new();
        let topic = framing.topic.clone();
        tasks.spawn(cancel.clone().run_until_cancelled_owned(publish(
            events,
            receiver,
            Arc::clone(&ring),
            topic,
        )));
        tasks.spawn(
            cancel
                .clone()
                .run_until_cancelled_owned(serve_replays(replay, ring, framing)),
        );
        Ok(Self {
            batches: sender,
            cancel,
            lost: 0,
        })
    }

    /// Queues a batch to go out at `due`, or only to be numbered. Never blocks: with the queue full the batch is
    /// lost without a number, and counted.
    pub fn send(&mut self, payload: Bytes, due: Instant, dropped: bool) {
        if self
            .batches
            .try_send(Batch {
                due,
                payload,
                dropped,
            })
            .is_err()
        {
            self.lost += 1;
        }
    }

    /// Batches lost before they had a number.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

async fn publish(
    mut socket: PubSocket,
    mut batches: mpsc::Receiver<Batch>,
    ring: Arc<Mutex<Ring>>,
    topic: Bytes,
) {
    while let Some(Batch {
        due,
        payload,
        dropped,
    }) = batches.recv().await
    {
        if due > Instant::now() {
            tokio::time::sleep_until(due.into()).await;
        }
        let seq = ring.lock().push(payload.clone());
        if dropped {
            continue;
        }
        let frames = [topic.clone(), Bytes::copy_from_slice(&seq.to_be_bytes()), payload];
        if let Err(error) = socket.send(message(frames)).await {
            tracing::warn!(%error, seq, "event batch not published");
        }
    }
}

/// Answers `[empty, start]` with every kept batch from `start` on and an end mark; ignores anything else.
async fn serve_replays(socket: RouterSocket, ring: Arc<Mutex<Ring>>, framing: Framing) {
    let (sender, mut receiver) = socket.split();
    let permits = Arc::new(tokio::sync::Semaphore::new(REPLAYS));
    let mut replays = tokio::task::JoinSet::new();
    loop {
        let Ok(request) = receiver.recv().await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let frames = request.into_vec();
        let [identity, empty, start] = frames.as_slice() else {
            continue;
        };
        let Ok(start) = <[u8; 8]>::try_from(start.as_ref()) else {
            continue;
        };
        if !empty.is_empty() {
            continue;
        }
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        while replays.try_join_next().is_some() {}
        let batches = ring.lock().since(u64::from_be_bytes(start));
        let (mut sender, identity, framing) = (sender.clone(), identity.clone(), framing.clone());
        replays.spawn(async move {
            let _permit = permit;
            let end = (u64::MAX, Bytes::new());
            for (seq, payload) in batches.into_iter().chain([end]) {
                let topic = if payload.is_empty() {
                    Bytes::new()
                } else {
                    framing.topic.clone()
                };
                let seq = Bytes::copy_from_slice(&seq.to_be_bytes());
                let reply = match framing.format {
                    EventFormat::Map => message([identity.clone(), Bytes::new(), topic, seq, payload]),
                    EventFormat::Array => message([identity.clone(), Bytes::new(), seq, payload]),
                };
                if let Err(error) = sender.send(reply).await {
                    tracing::debug!(%error, "replay ended early");
                    return;
                }
            }
        });
    }
}

fn message<const N: usize>(frames: [Bytes; N]) -> ZmqMessage {
    ZmqMessage::try_from(Vec::from(frames)).expect("there is at least one frame")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_the_last_batches_and_begins_at_the_oldest() {
        let mut ring = Ring {
            next_seq: 0,
            kept: VecDeque::new(),
            capacity: 3,
        };
        for seq in 0..5_u8 {
            assert_eq!(ring.push(Bytes::from(vec![seq])), u64::from(seq));
        }
        let seqs = |from| ring.since(from).iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
        assert_eq!(seqs(0), [2, 3, 4]);
        assert_eq!(seqs(3), [3, 4]);
        assert!(seqs(50).is_empty());
    }
}
