//! Publishers that break the protocol beneath the messages: nothing they announce or send takes more memory than
//! one message, and other sources go on.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lmetric_kvevents::SourceState;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    task::{AbortHandle, JoinSet},
};

use crate::{
    encode::Chain,
    publisher::{Framing, Publisher},
    transport::{Picker, publish, until},
};

/// Greets, then says this, then pours out zeros for as long as anyone takes them.
struct Pouring {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// Most octets that one connection took.
    poured: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Drop for Pouring {
    fn drop(&mut self) {
        self.task.abort();
    }
}

const GREETING: &[u8; 64] = b"\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const READY: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB";

impl Pouring {
    fn start(opening: Vec<u8>, repeated: &'static [u8]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let (connections, poured) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counter, most) = (Arc::clone(&connections), Arc::clone(&poured));
        let task = tokio::spawn(async move {
            let mut streams = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                streams.spawn(pour(stream, opening.clone(), repeated, Arc::clone(&most)));
            }
        });
        Self {
            port,
            connections,
            poured,
            task: task.abort_handle(),
        }
    }
}

async fn pour(mut stream: TcpStream, opening: Vec<u8>, repeated: &[u8], most: Arc<AtomicUsize>) {
    let piece = repeated.repeat(32 * 1024 / repeated.len());
    let mut poured = 0;
    if stream.write_all(&opening).await.is_ok() {
        while let Ok(octets) = stream.write(&piece).await {
            poured += octets;
            most.fetch_max(poured, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }
}

fn welcome(then: &[u8]) -> Vec<u8> {
    [&GREETING[..], READY, then].concat()
}

fn long(announced: u64) -> Vec<u8> {
    welcome(&[&[2][..], &announced.to_be_bytes()].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_that_break_the_protocol_get_one_message_of_memory_and_stop_no_other_source() {
    let picker = Picker::new();
    let hostile = [
        Pouring::start(long(1 << 34), &[0]),
        Pouring::start(long(1 << 50), &[0]),
        Pouring::start(long(u64::MAX), &[0]),
        // frames that never end a message, empty ones and long ones
        Pouring::start(welcome(b""), b"\x01\x00"),
        Pouring::start(welcome(b""), b"\x01\x06octets"),
        // no greeting at all, and one that goes on for ever
        Pouring::start(Vec::new(), &[0]),
        Pouring::start(b"\xff".to_vec(), &[0xff]),
        // a socket of another type
        Pouring::start(
            [&GREETING[..], b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06ROUTER"].concat(),
            &[0],
        ),
        // a long command
        Pouring::start(welcome(b"\x06\x00\x00\x00\x01\x00\x00\x00\x00"), &[0]),
    ];
    let bad: Vec<_> = hostile
        .iter()
        .zip(10..)
        .map(|(hostile, id)| picker.source(id, hostile.port, Some(hostile.port)))
        .collect();
    let mut honest = Publisher::start(Framing::Topic, 1_000).await;
    let chain = Chain::new(31, 200);
    let good = picker.source(2, honest.events, Some(honest.replay));
    until("subscription", || good.state() == SourceState::Live).await;
    for block in 0..200 {
        publish(&mut honest, &chain, block..block + 1).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    until("honest source", || picker.sink.holds(2, &chain.keys)).await;
    assert_eq!(good.state(), SourceState::Live);
    for (at, hostile) in hostile.iter().enumerate() {
        until(&format!("another attempt at {at}"), || {
            hostile.connections.load(Ordering::Relaxed) >= 2
        })
        .await;
        // what the kernel buffers on both sides of a connection is in it
        let poured = hostile.poured.load(Ordering::Relaxed);
        assert!(poured < 32 << 20, "publisher {at} got rid of {poured} bytes");
    }
    assert!(bad.iter().all(|source| source.state() != SourceState::Live));
}
