//! The client against peers of every kind, and the frame decoder against every way to cut its input.

use std::{net::Ipv4Addr, time::Duration};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::{
    Connection, Fault, MAX_COMMAND, MAX_FRAME, MAX_FRAMES, MAX_MESSAGE, Role,
    frame::{self, CHUNK, Inbox, Received},
    handshake,
    heartbeat::Heartbeat,
};

const PATIENCE: Duration = Duration::from_millis(300);

fn ready(socket_type: &str) -> BytesMut {
    let mut data = b"\x0bsocket-type".to_vec();
    data.extend_from_slice(&(socket_type.len() as u32).to_be_bytes());
    data.extend_from_slice(socket_type.as_bytes());
    let mut out = BytesMut::new();
    frame::put_command(&mut out, "READY", &data);
    out
}

fn greeting(minor: u8) -> [u8; 64] {
    let mut greeting = handshake::greeting();
    greeting[11] = minor;
    greeting
}

/// What a publisher says up to its first message.
fn welcome(minor: u8, socket_type: &str) -> Vec<u8> {
    [&greeting(minor)[..], &ready(socket_type)].concat()
}

fn long(flags: u8, announced: u64) -> Vec<u8> {
    [&[flags | 2][..], &announced.to_be_bytes()].concat()
}

/// A peer that does as told with its one connection.
async fn peer<F: Future<Output = ()> + Send + 'static>(
    behave: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        behave(stream).await;
    });
    (endpoint, task)
}

/// A peer that says this and then keeps still.
async fn saying(octets: Vec<u8>) -> (String, JoinHandle<()>) {
    peer(|mut stream| async move {
        // a client may hang up before it has read all
        let _ = stream.write_all(&octets).await;
        std::future::pending::<()>().await;
    })
    .await
}

async fn subscribe(endpoint: &str) -> Result<Connection, Fault> {
    Connection::open(endpoint, Role::Sub, &[b"\x01"], PATIENCE).await
}

async fn refused(octets: impl Into<Vec<u8>>) -> Fault {
    let (endpoint, _peer) = saying(octets.into()).await;
    subscribe(&endpoint).await.unwrap_err()
}

/// How the first message fails that follows a proper handshake.
async fn broken(octets: &[u8]) -> Fault {
    let (endpoint, _peer) = saying([&welcome(0, "PUB"), octets].concat()).await;
    subscribe(&endpoint).await.unwrap().receive().await.unwrap_err()
}

#[tokio::test]
async fn endpoints_other_than_a_host_and_port_of_tcp_are_refused_with_the_remedy() {
    for endpoint in [
        "ipc:///tmp/events",
        "inproc://events",
        "udp://127.0.0.1:5557",
        "tcp://*:5557",
        "tcp://:5557",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:many",
        "tcp://eth0:0;127.0.0.1:5557",
    ] {
        let fault = subscribe(endpoint).await.unwrap_err();
        assert!(matches!(fault, Fault::Endpoint), "{endpoint}: {fault}");
        assert!(fault.to_string().contains("tcp://HOST:PORT"));
    }
}

#[tokio::test]
async fn a_greeting_that_stalls_is_given_up_after_the_patience() {
    let (endpoint, _peer) = peer(|mut stream| async move {
        for octet in greeting(0) {
            if stream.write_all(&[octet]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let begun = std::time::Instant::now();
    assert!(matches!(subscribe(&endpoint).await, Err(Fault::Silent(PATIENCE))));
    assert!(begun.elapsed() < 3 * PATIENCE);
}

#[tokio::test]
async fn a_peer_that_is_no_zeromq_socket_is_told_at_its_first_octet() {
    assert!(matches!(refused("H").await, Fault::NotZmtp));
    assert!(matches!(refused([0xff; 64]).await, Fault::NotZmtp));
    assert!(matches!(refused([0; 64]).await, Fault::NotZmtp));
}

#[tokio::test]
async fn older_versions_and_other_mechanisms_are_refused() {
    let mut old = greeting(0);
    old[10] = 1;
    assert!(matches!(refused(&old[..11]).await, Fault::Version(1)));
    let mut curve = greeting(0);
    curve[12..17].copy_from_slice(b"CURVE");
    assert!(matches!(refused(curve).await, Fault::Mechanism(mechanism) if mechanism == "CURVE"));
}

#[tokio::test]
async fn a_socket_of_the_wrong_type_is_refused_by_name() {
    let fault = refused(welcome(1, "ROUTER")).await;
    assert!(
        matches!(&fault, Fault::Peer { theirs, wanted: "PUB" } if theirs == "ROUTER"),
        "{fault}"
    );
    let (endpoint, _peer) = saying(welcome(1, "PUB")).await;
    let fault = Connection::open(&endpoint, Role::Dealer, &[b""], PATIENCE)
        .await
        .unwrap_err();
    assert!(
        matches!(&fault, Fault::Peer { theirs, wanted: "ROUTER" } if theirs == "PUB"),
        "{fault}"
    );
}

#[tokio::test]
async fn what_comes_in_place_of_ready_is_refused() {
    let mut error = greeting(0).to_vec();
    error.extend_from_slice(b"\x04\x0a\x05ERROR\x03no\n");
    assert!(matches!(refused(error).await, Fault::Refused(reason) if reason == "no\\n"));
    for wrong in [
        &b"\x00\x01x"[..],
        b"\x04\x05\x04PING",
        b"\x04\x06\x05READY",
        b"\x04\x00",
        b"\x04\x02\x05R",
    ] {
        let fault = refused([&greeting(0)[..], wrong].concat()).await;
        assert!(matches!(fault, Fault::Broken(_)), "{wrong:?}: {fault}");
    }
}

#[tokio::test]
async fn a_frame_is_refused_for_what_it_announces() {
    for announced in [MAX_FRAME as u64 + 1, 1 << 34, 1 << 50, u64::MAX] {
        let fault = broken(&long(0, announced)).await;
        assert!(
            matches!(fault, Fault::LongFrame { announced: told, .. } if told == announced),
            "{fault}"
        );
    }
    let fault = broken(&long(4, MAX_COMMAND as u64 + 1)).await;
    assert!(
        matches!(
            fault,
            Fault::LongFrame {
                limit: MAX_COMMAND,
                ..
            }
        ),
        "{fault}"
    );
}

#[tokio::test]
async fn a_message_without_end_is_refused() {
    assert!(matches!(
        broken(&b"\x01\x00".repeat(1_000)).await,
        Fault::ManyFrames
    ));
    let mut frames = long(1, MAX_FRAME as u64);
    frames.resize(frames.len() + MAX_FRAME, 7);
    frames.extend_from_slice(&long(0, (MAX_MESSAGE - MAX_FRAME) as u64 + 1));
    assert!(matches!(broken(&frames).await, Fault::LongMessage));
}

#[tokio::test]
async fn flags_that_no_frame_has_are_refused() {
    for flags in [0x08, 0x80, 0x05] {
        assert!(matches!(broken(&[flags, 0]).await, Fault::Broken(_)));
    }
}

#[tokio::test]
async fn commands_between_frames_are_obeyed_or_stepped_over_and_receiving_can_be_cancelled_anywhere() {
    let mut octets = welcome(0, "PUB");
    octets.extend_from_slice(b"\x01\x02ab\x04\x09\x04PING\0\0xy\x04\x05\x04WHAT\x00\x01c");
    let (endpoint, peer) = peer(|mut stream| async move {
        for octet in octets {
            stream.write_all(&[octet]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let pong = b"\x04\x07\x04PONGxy";
        let mut heard = Vec::new();
        while !heard.ends_with(pong) {
            assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
        }
    })
    .await;
    let mut connection = subscribe(&endpoint).await.unwrap();
    let frames = loop {
        tokio::select! {
            biased;
            frames = connection.receive() => break frames.unwrap(),
            () = tokio::task::yield_now() => {}
        }
    };
    assert_eq!(frames, [&b"ab"[..], b"c"]);
    // PONG goes out while the next message is waited for
    tokio::select! {
        received = connection.receive() => assert!(matches!(received, Err(Fault::Closed))),
        done = peer => done.unwrap(),
    }
}

#[tokio::test]
async fn a_peer_that_asks_without_end_and_reads_nothing_takes_no_memory() {
    let pings = b"\x04\x07\x04PING\0\0".repeat(100_000);
    let (endpoint, _peer) = saying([welcome(0, "PUB"), pings, b"\x00\x00".to_vec()].concat()).await;
    let mut connection = subscribe(&endpoint).await.unwrap();
    connection.receive().await.unwrap();
    assert!(
        connection.out.capacity() <= 4 * super::MAX_OUT,
        "{}",
        connection.out.capacity()
    );
}

#[tokio::test]
async fn only_a_peer_that_knows_heartbeats_is_called_dead_for_its_silence() {
    let pulse = || Heartbeat::new(Duration::from_millis(50), Duration::from_millis(100));
    // knows heartbeats and is silent
    let (endpoint, _peer) = saying(welcome(1, "PUB")).await;
    let mut connection = subscribe(&endpoint).await.unwrap();
    assert!(connection.heartbeat.due().is_some());
    connection.heartbeat = pulse();
    assert!(matches!(connection.receive().await, Err(Fault::Dead(_))));
    // knows none
    let (endpoint, _peer) = saying(welcome(0, "PUB")).await;
    let mut connection = subscribe(&endpoint).await.unwrap();
    assert!(connection.heartbeat.due().is_none());
    assert!(
        tokio::time::timeout(PATIENCE, connection.receive())
            .await
            .is_err()
    );
    // answers
    let (endpoint, _peer) = peer(|mut stream| async move {
        stream.write_all(&welcome(1, "PUB")).await.unwrap();
        let mut heard = Vec::new();
        let mut answered = 0;
        while stream.read_buf(&mut heard).await.unwrap() > 0 {
            let asked = heard.windows(5).filter(|octets| octets == b"\x04PING").count();
            while answered < asked {
                stream.write_all(b"\x04\x05\x04PONG").await.unwrap();
                answered += 1;
            }
        }
    })
    .await;
    let mut connection = subscribe(&endpoint).await.unwrap();
    connection.heartbeat = Heartbeat::new(Duration::from_millis(20), Duration::from_secs(5));
    assert!(
        tokio::time::timeout(PATIENCE, connection.receive())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn time_in_which_nobody_waited_counts_not_against_a_peer() {
    let (endpoint, _peer) = peer(|mut stream| async move {
        stream.write_all(&welcome(1, "PUB")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        stream.write_all(b"\x00\x01x").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let mut connection = subscribe(&endpoint).await.unwrap();
    connection.heartbeat = Heartbeat::new(Duration::from_millis(20), Duration::from_millis(500));
    assert!(
        tokio::time::timeout(Duration::from_millis(50), connection.receive())
            .await
            .is_err()
    );
    // asked by now; the grace passes with nobody at the connection
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(connection.receive().await.unwrap(), [&b"x"[..]]);
}

/// Feeds `octets` in pieces of these lengths, over and over.
fn decode(octets: &[u8], cuts: &[usize]) -> (Vec<Received>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut inbox, mut received, mut room) = (Inbox::default(), Vec::new(), 0);
    let (mut rest, mut cuts) = (octets, cuts.iter().cycle());
    while !rest.is_empty() {
        let (mut piece, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
        rest = later;
        while !piece.is_empty() {
            runtime.block_on(inbox.fill(&mut piece)).unwrap();
            while let Some(next) = inbox.take().unwrap() {
                received.push(next);
            }
            room = room.max(inbox.room());
        }
    }
    (received, room)
}

fn received() -> impl Strategy<Value = Received> {
    let body = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..20),
        4 => prop::collection::vec(any::<u8>(), 250..260),
        1 => prop::collection::vec(any::<u8>(), CHUNK - 2..CHUNK * 3),
    ]
    .prop_map(Bytes::from);
    let command = ("[A-Z]{1,8}", prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(name, data)| {
        Received::Command([&[name.len() as u8], name.as_bytes(), &data].concat().into())
    });
    prop_oneof![
        4 => prop::collection::vec(body, 1..=MAX_FRAMES).prop_map(Received::Message),
        1 => command,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn however_the_octets_are_cut_the_same_messages_come_out(
        sent in prop::collection::vec(received(), 0..8),
        cuts in prop::collection::vec(prop_oneof![1_usize..12, 200_usize..70_000], 1..8),
    ) {
        let mut octets = BytesMut::new();
        for one in &sent {
            match one {
                Received::Message(frames) => {
                    let frames: Vec<&[u8]> = frames.iter().map(AsRef::as_ref).collect();
                    frame::put_message(&mut octets, &frames);
                }
                Received::Command(body) => {
                    let (name, data) = handshake::name_and_data(body).unwrap();
                    frame::put_command(&mut octets, std::str::from_utf8(name).unwrap(), data);
                }
            }
        }
        prop_assert_eq!(decode(&octets, &cuts).0, sent);
    }

    #[test]
    fn whatever_arrives_room_grows_only_with_it(octets in prop::collection::vec(any::<u8>(), 0..4_000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut inbox, mut rest) = (Inbox::default(), &octets[..]);
        while !rest.is_empty() {
            runtime.block_on(inbox.fill(&mut rest)).unwrap();
            while let Ok(Some(_)) = inbox.take() {}
        }
        prop_assert!(inbox.room() <= 2 * octets.len() + 32 * 1024, "{} for {}", inbox.room(), octets.len());
    }
}

#[test]
fn the_longest_message_takes_no_more_than_twice_its_length_and_leaves_nothing_behind() {
    let payload = vec![7; MAX_FRAME];
    let mut octets = BytesMut::new();
    frame::put_message(&mut octets, &[b"topic", b"12345678", &payload]);
    frame::put_message(&mut octets, &[b"next"]);
    octets.extend_from_slice(b"\x00");
    let (received, room) = decode(&octets, &[1_000_000]);
    assert_eq!(received.len(), 2);
    assert!(room <= 2 * MAX_MESSAGE, "{room}");
    let mut inbox = Inbox::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut rest = &octets[..];
    while !rest.is_empty() {
        runtime.block_on(inbox.fill(&mut rest)).unwrap();
        while inbox.take().unwrap().is_some() {}
    }
    assert!(inbox.room() <= 2 * CHUNK, "{}", inbox.room());
}
