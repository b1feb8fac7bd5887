//! KV events and replay over ZeroMQ.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use lmetric_kvevents::wire::{Event, Hash, decode_batch};
use serde_json::json;
use vllm_sim::Fleet;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use crate::support::{fleet, post, state, until};

/// A subscriber that has certainly joined.
pub(crate) async fn subscribe(fleet: &Fleet, engine: usize) -> SubSocket {
    let mut socket = SubSocket::new();
    socket.connect(&endpoint(fleet, engine, "events")).await.unwrap();
    socket.subscribe("").await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    socket
}

fn endpoint(fleet: &Fleet, engine: usize, which: &str) -> String {
    fleet.ready()["engines"][engine][which]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Everything that arrives within the time.
pub(crate) async fn drain(socket: &mut SubSocket, quiet: Duration) -> Vec<(u64, Bytes)> {
    let mut batches = Vec::new();
    while let Ok(message) = tokio::time::timeout(quiet, socket.recv()).await {
        let frames = message.unwrap().into_vec();
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[0], "kv-events");
        batches.push((seq(&frames[1]), frames[2].clone()));
    }
    batches
}

fn seq(frame: &Bytes) -> u64 {
    u64::from_be_bytes(frame.as_ref().try_into().unwrap())
}

/// The frames of every reply to a replay from `start`, the end mark included.
async fn replay(fleet: &Fleet, engine: usize, start: u64) -> Vec<Vec<Bytes>> {
    let mut socket = DealerSocket::new();
    socket.connect(&endpoint(fleet, engine, "replay")).await.unwrap();
    let request = vec![Bytes::new(), Bytes::copy_from_slice(&start.to_be_bytes())];
    socket.send(ZmqMessage::try_from(request).unwrap()).await.unwrap();
    let mut replies = Vec::new();
    loop {
        let reply = tokio::time::timeout(Duration::from_secs(5), socket.recv())
            .await
            .unwrap()
            .unwrap();
        let frames = reply.into_vec();
        let end = frames.last().unwrap().is_empty();
        replies.push(frames);
        if end {
            return replies;
        }
    }
}

/// Copies per hash after these batches.
fn recount(batches: &[(u64, Bytes)]) -> HashMap<u64, u32> {
    let mut copies: HashMap<u64, u32> = HashMap::new();
    for (_, payload) in batches {
        for event in decode_batch(payload).unwrap().events {
            match event {
                Event::Stored(stored) => {
                    stored
                        .hashes
                        .iter()
                        .for_each(|hash| *copies.entry(hash.get()).or_default() += 1);
                }
                Event::Removed(removed) => {
                    for hash in removed.hashes.iter().map(Hash::get) {
                        let left = copies.get_mut(&hash).expect("only what is held is removed");
                        *left -= 1;
                        if *left == 0 {
                            copies.remove(&hash);
                        }
                    }
                }
                Event::Cleared => copies.clear(),
            }
        }
    }
    copies
}

async fn load(address: SocketAddr, requests: u32) {
    let all = (0..requests).map(|nth| {
        let prompt: Vec<u32> = (0..20 * (nth % 4)).chain(1000 * nth..1000 * nth + 60).collect();
        async move {
            let body = json!({"prompt": prompt, "max_tokens": 1 + nth * 7 % 60});
            assert_eq!(post(address, "/v1/completions", &body).await.status, 200);
        }
    });
    futures::future::join_all(all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recount_of_the_events_is_the_engines_cache() {
    let fleet = fleet("--speed 20 --num-gpu-blocks-override 60 --max-num-batched-tokens 128").await;
    let address = fleet.sites()[0].address;
    let mut socket = subscribe(&fleet, 0).await;
    load(address, 60).await;
    let batches = drain(&mut socket, Duration::from_millis(300)).await;
    for (nth, (seq, _)) in batches.iter().enumerate() {
        assert_eq!(*seq, nth as u64, "no gap from the start");
    }
    let state = state(address).await;
    assert_eq!(
        recount(&batches).len() as u64,
        state["cached_blocks"].as_u64().unwrap()
    );
    let removed = batches.iter().any(|(_, payload)| {
        decode_batch(payload)
            .unwrap()
            .events
            .iter()
            .any(|event| matches!(event, Event::Removed(_)))
    });
    assert!(removed, "the cache is too large for this test");
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_repeats_the_live_messages_in_each_framing() {
    for (format, frames) in [("map", 4), ("array", 3)] {
        let fleet = fleet(&format!("--speed 50 --event-format {format}")).await;
        let mut socket = subscribe(&fleet, 0).await;
        load(fleet.sites()[0].address, 10).await;
        let live = drain(&mut socket, Duration::from_millis(300)).await;
        assert!(live.len() > 5);
        for start in [0, 3] {
            let replies = replay(&fleet, 0, start).await;
            let (end, batches) = replies.split_last().unwrap();
            assert!(
                replies
                    .iter()
                    .all(|reply| reply.len() == frames && reply[0].is_empty())
            );
            let repeated: Vec<_> = batches
                .iter()
                .map(|reply| (seq(&reply[frames - 2]), reply[frames - 1].clone()))
                .collect();
            assert_eq!(repeated, live[start as usize..]);
            assert_eq!(end[frames - 2], Bytes::from_static(&[0xFF; 8]));
            if format == "map" {
                assert_eq!(batches[0][1], "kv-events");
                assert!(end[1].is_empty());
            }
        }
        let beyond = replay(&fleet, 0, 1 << 40).await;
        assert_eq!(beyond.len(), 1, "only the end mark");
        fleet.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ring_begins_where_the_buffer_does() {
    let fleet = fleet("--speed 100 --buffer-steps 4").await;
    let address = fleet.sites()[0].address;
    let mut socket = subscribe(&fleet, 0).await;
    load(address, 10).await;
    let live = drain(&mut socket, Duration::from_millis(300)).await;
    let replies = replay(&fleet, 0, 0).await;
    assert_eq!(replies.len(), 5);
    assert_eq!(seq(&replies[0][2]), live.len() as u64 - 4);
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_published_with_the_next_step() {
    let fleet = fleet("--speed 100").await;
    let address = fleet.sites()[0].address;
    let mut socket = subscribe(&fleet, 0).await;
    load(address, 1).await;
    assert_eq!(drain(&mut socket, Duration::from_millis(200)).await.len(), 1);
    let answer = post(address, "/reset_prefix_cache", &json!({})).await;
    assert_eq!(answer.json(), json!({"success": true}));
    assert!(
        drain(&mut socket, Duration::from_millis(200)).await.is_empty(),
        "an idle engine says nothing"
    );
    load(address, 1).await;
    let batches = drain(&mut socket, Duration::from_millis(200)).await;
    let batch = decode_batch(&batches[0].1).unwrap();
    assert_eq!(batch.events[0], Event::Cleared);
    assert!(matches!(batch.events[1], Event::Stored(_)));
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_under_load_is_refused_unless_it_may_preempt() {
    let fleet = fleet("--speed 1").await;
    let address = fleet.sites()[0].address;
    let body = json!({"prompt": (0..64).collect::<Vec<u32>>(), "max_tokens": 50_000, "stream": true});
    let _stream = crate::support::open(address, "/v1/completions", &body).await;
    until("it runs", || async { state(address).await["running"] == 1 }).await;
    let answer = post(address, "/reset_prefix_cache", &json!({})).await;
    assert_eq!(answer.json(), json!({"success": false}));
    let answer = post(
        address,
        "/reset_prefix_cache?reset_running_requests=true",
        &json!({}),
    )
    .await;
    assert_eq!(answer.json(), json!({"success": true}));
    until("it goes on", || async { state(address).await["running"] == 1 }).await;
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_batches_leave_a_gap_that_the_replay_fills() {
    let fleet = fleet("--speed 100").await;
    let address = fleet.sites()[0].address;
    let mut socket = subscribe(&fleet, 0).await;
    load(address, 1).await;
    let fault = post(address, "/sim/fault", &json!({"kind": "drop-events", "count": 2})).await;
    assert_eq!(fault.status, 200);
    tokio::time::sleep(Duration::from_millis(30)).await;
    for nth in 0..3 {
        let prompt: Vec<u32> = (5000 + nth * 100..5000 + nth * 100 + 40).collect();
        post(
            address,
            "/v1/completions",
            &json!({"prompt": prompt, "max_tokens": 1}),
        )
        .await;
    }
    let live = drain(&mut socket, Duration::from_millis(200)).await;
    assert_eq!(live.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(replay(&fleet, 0, 0).await.len(), 5);
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_can_come_late() {
    let fleet = fleet("--speed 10 --event-delay 5s").await;
    let address = fleet.sites()[0].address;
    let mut socket = subscribe(&fleet, 0).await;
    load(address, 1).await;
    let began = std::time::Instant::now();
    let batches = drain(&mut socket, Duration::from_millis(800)).await;
    assert_eq!(batches.len(), 1);
    // 5 s of model time are 500 ms; then the drain waits for more
    assert!(
        began.elapsed() > Duration::from_millis(1200),
        "{:?}",
        began.elapsed()
    );
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_publish_on_ports_of_their_own() {
    let fleet = fleet("--speed 100 --data-parallel-size 2").await;
    let address = fleet.sites()[0].address;
    let sources = crate::support::get(address, "/kv_event_sources").await.json();
    let mut sockets = Vec::new();
    for rank in ["0", "1"] {
        let mut socket = SubSocket::new();
        socket
            .connect(sources[rank]["endpoint"].as_str().unwrap())
            .await
            .unwrap();
        socket.subscribe("").await.unwrap();
        sockets.push(socket);
    }
    tokio::time::sleep(Duration::from_millis(150)).await;
    load(address, 8).await;
    for (rank, socket) in sockets.iter_mut().enumerate() {
        let batches = drain(socket, Duration::from_millis(200)).await;
        assert!(!batches.is_empty(), "rank {rank} had nothing to do");
        assert!(
            batches
                .iter()
                .all(|(_, payload)| decode_batch(payload).unwrap().rank == Some(rank as i64))
        );
    }
    fleet.shutdown(Duration::ZERO).await;
}
