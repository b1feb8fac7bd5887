//! A publisher as vLLM is one: PUB for live messages, ROUTER for replays of a ring.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// Whether replies carry a topic frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// vLLM 0.25 and older.
    Short,
    /// vLLM 0.26 and later.
    Topic,
}

#[derive(Default)]
struct Ring {
    next: u64,
    kept: VecDeque<(u64, Bytes)>,
    capacity: usize,
}

pub(crate) struct Publisher {
    live: PubSocket,
    ring: Arc<Mutex<Ring>>,
    replays: Arc<AtomicUsize>,
    /// Sequence numbers that the next replay leaves out.
    holes: Arc<Mutex<Vec<u64>>>,
    task: JoinHandle<()>,
    pub(crate) events: u16,
    pub(crate) replay: u16,
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn listener(port: u16) -> TcpListener {
    for _ in 0..200 {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return listener,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("port {port} stays taken");
}

fn message(frames: Vec<Bytes>) -> ZmqMessage {
    ZmqMessage::try_from(frames).unwrap()
}

fn number(seq: u64) -> Bytes {
    Bytes::copy_from_slice(&seq.to_be_bytes())
}

impl Publisher {
    pub(crate) async fn start(framing: Framing, capacity: usize) -> Self {
        Self::on(framing, capacity, 0, 0).await
    }

    /// On the ports of one that is gone.
    pub(crate) async fn on(framing: Framing, capacity: usize, events: u16, replay: u16) -> Self {
        let (events, replay) = (listener(events), listener(replay));
        let ports = [&events, &replay].map(|listener| listener.local_addr().unwrap().port());
        let mut live = PubSocket::new();
        live.bind_listener(events).await.unwrap();
        let mut router = RouterSocket::new();
        router.bind_listener(replay).await.unwrap();
        let ring = Arc::new(Mutex::new(Ring {
            capacity,
            ..Ring::default()
        }));
        let replays = Arc::new(AtomicUsize::new(0));
        let holes = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(serve(
            router,
            framing,
            Arc::clone(&ring),
            Arc::clone(&replays),
            Arc::clone(&holes),
        ));
        Self {
            live,
            ring,
            replays,
            holes,
            task,
            events: ports[0],
            replay: ports[1],
        }
    }

    pub(crate) fn replays(&self) -> usize {
        self.replays.load(Ordering::Relaxed)
    }

    /// The next replay leaves these out, the way a full send queue does.
    pub(crate) fn leave_out(&self, seqs: &[u64]) {
        *self.holes.lock() = seqs.to_vec();
    }

    /// Numbers a payload and keeps it for replays, but sends it to nobody.
    pub(crate) fn lose(&mut self, payload: &[u8]) -> u64 {
        let mut ring = self.ring.lock();
        let seq = ring.next;
        ring.next += 1;
        ring.kept.push_back((seq, Bytes::copy_from_slice(payload)));
        if ring.kept.len() > ring.capacity {
            ring.kept.pop_front();
        }
        seq
    }

    pub(crate) async fn publish(&mut self, payload: &[u8]) {
        let seq = self.lose(payload);
        self.send(seq, payload).await;
    }

    /// Sends a message without numbering or keeping it.
    pub(crate) async fn send(&mut self, seq: u64, payload: &[u8]) {
        let frames = vec![
            Bytes::from_static(b"kv-events"),
            number(seq),
            Bytes::copy_from_slice(payload),
        ];
        self.live.send(message(frames)).await.unwrap();
    }

    pub(crate) async fn send_frames(&mut self, frames: Vec<Bytes>) {
        self.live.send(message(frames)).await.unwrap();
    }
}

async fn serve(
    mut router: RouterSocket,
    framing: Framing,
    ring: Arc<Mutex<Ring>>,
    replays: Arc<AtomicUsize>,
    holes: Arc<Mutex<Vec<u64>>>,
) {
    loop {
        let Ok(request) = router.recv().await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let frames = request.into_vec();
        assert_eq!(frames.len(), 3, "vLLM ignores requests of other lengths");
        let start = u64::from_be_bytes(frames[2].as_ref().try_into().unwrap());
        replays.fetch_add(1, Ordering::Relaxed);
        let holes = std::mem::take(&mut *holes.lock());
        let mut kept: Vec<(u64, Bytes)> = ring.lock().kept.iter().cloned().collect();
        kept.retain(|(seq, _)| *seq >= start && !holes.contains(seq));
        kept.push((u64::MAX, Bytes::new()));
        for (seq, payload) in kept {
            let mut reply = vec![frames[0].clone(), Bytes::new()];
            if framing == Framing::Topic {
                let end = payload.is_empty();
                reply.push(if end {
                    Bytes::new()
                } else {
                    Bytes::from_static(b"kv-events")
                });
            }
            reply.extend([number(seq), payload]);
            if router.send(message(reply)).await.is_err() {
                break;
            }
        }
    }
}
