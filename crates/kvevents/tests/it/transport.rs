//! Sources against publishers in this process, over loopback.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;
use lmetric_kvevents::{
    Adoption, EventSink, Op, SourceState,
    transport::{Replays, SourceHandle, SourceSpec, Timing, spawn},
};
use lmetric_prefix::{BlockKey, ContentHash, SourceId};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    encode::{self, Chain},
    plain,
    publisher::{Framing, Publisher},
};

#[derive(Default)]
pub(crate) struct Sink {
    held: Mutex<HashSet<(u16, u64)>>,
    clears: Mutex<usize>,
    states: Mutex<Vec<SourceState>>,
}

impl EventSink for Sink {
    fn apply(&self, source: SourceId, ops: &[Op]) {
        let mut held = self.held.lock();
        for op in ops {
            match *op {
                Op::Store { key, .. } | Op::Adopt { key, .. } | Op::Infer { key } => {
                    held.insert((source.0, key.get()));
                }
                Op::Remove { key } => assert!(held.remove(&(source.0, key.get()))),
                Op::Clear => {
                    held.retain(|(holder, _)| *holder != source.0);
                    *self.clears.lock() += 1;
                }
                Op::Gapless(_) => {}
            }
        }
    }

    fn state_changed(&self, _: SourceId, state: SourceState) {
        self.states.lock().push(state);
    }

    fn adopt(&self, _: SourceId, _: &[ContentHash]) -> Option<Adoption> {
        None
    }
}

impl Sink {
    pub(crate) fn holds(&self, source: u16, keys: &[BlockKey]) -> bool {
        let held = self.held.lock();
        let mine = held.iter().filter(|(holder, _)| *holder == source).count();
        mine == keys.len() && keys.iter().all(|key| held.contains(&(source, key.get())))
    }
}

pub(crate) struct Picker {
    pub(crate) sink: Arc<Sink>,
    replays: Replays,
    cancel: CancellationToken,
}

impl Picker {
    pub(crate) fn new() -> Self {
        Self::with_idle(Duration::from_secs(30))
    }

    fn with_idle(idle: Duration) -> Self {
        let timing = Timing {
            patience: Duration::from_millis(500),
            settle: Duration::from_millis(20),
            reconnect: Duration::from_millis(20),
            idle,
            ..Timing::default()
        };
        Self {
            sink: Arc::default(),
            replays: Replays::with_timing(4, timing),
            cancel: CancellationToken::new(),
        }
    }

    pub(crate) fn source(&self, id: u16, events: u16, replay: Option<u16>) -> SourceHandle {
        let spec = SourceSpec {
            id: SourceId(id),
            name: Arc::from("test"),
            endpoint: format!("tcp://127.0.0.1:{events}"),
            replay: replay.map(|port| format!("tcp://127.0.0.1:{port}")),
            topic: String::new(),
            rank: None,
            group: Arc::from(plain::GROUP),
            seed: plain::seed(),
            gpu_blocks: 65_536,
        };
        spawn(spec, self.sink.clone(), &self.replays, self.cancel.clone())
    }
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{what} did not come about"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Publishes one block per message.
pub(crate) async fn publish(publisher: &mut Publisher, chain: &Chain, blocks: std::ops::Range<usize>) {
    for block in blocks {
        publisher.publish(&chain.stored(block..block + 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_joins_late_has_all_that_the_ring_has_in_both_framings() {
    for framing in [Framing::Short, Framing::Topic] {
        let picker = Picker::new();
        let mut publisher = Publisher::start(framing, 10_000).await;
        let chain = Chain::new(1, 60);
        publish(&mut publisher, &chain, 0..40).await;
        let source = picker.source(3, publisher.events, Some(publisher.replay));
        until("replay", || picker.sink.holds(3, &chain.keys[..40])).await;
        publish(&mut publisher, &chain, 40..60).await;
        until("live", || picker.sink.holds(3, &chain.keys)).await;
        until("live state", || source.state() == SourceState::Live).await;
        assert_eq!(source.stats().last_seq, Some(59));
        assert_eq!(source.block_size().unwrap().get(), encode::BLOCK);
        assert_eq!((source.stats().gaps, publisher.replays()), (0, 1));
        source.stop().await;
        assert!(picker.sink.holds(3, &[]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_pass_while_a_replay_runs_are_neither_lost_nor_applied_twice() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 10_000).await;
    let chain = Chain::new(2, 2_000);
    publish(&mut publisher, &chain, 0..1_000).await;
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    for block in 1_000..2_000 {
        publish(&mut publisher, &chain, block..block + 1).await;
        if block % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    until("all blocks", || picker.sink.holds(1, &chain.keys)).await;
    until("live state", || source.state() == SourceState::Live).await;
    assert_eq!(source.stats().stored, 2_000);
    assert_eq!(*picker.sink.clears.lock(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_filled_by_a_replay() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 10_000).await;
    let chain = Chain::new(3, 30);
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    until("live state", || source.state() == SourceState::Live).await;
    publish(&mut publisher, &chain, 0..10).await;
    until("first", || picker.sink.holds(1, &chain.keys[..10])).await;
    for block in 10..20 {
        publisher.lose(&chain.stored(block..block + 1));
    }
    publish(&mut publisher, &chain, 20..30).await;
    until("all", || picker.sink.holds(1, &chain.keys)).await;
    until("live state", || source.state() == SourceState::Live).await;
    assert_eq!(source.stats().gaps, 1);
    assert_eq!(source.stats().stored, 30);
    assert!(picker.sink.states.lock().contains(&SourceState::Stale));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_in_a_replay_is_asked_for_again() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 10_000).await;
    let chain = Chain::new(4, 50);
    publish(&mut publisher, &chain, 0..50).await;
    publisher.leave_out(&[20, 21, 22]);
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    until("all", || picker.sink.holds(1, &chain.keys)).await;
    until("live state", || source.state() == SourceState::Live).await;
    assert_eq!(publisher.replays(), 2);
    assert_eq!(source.stats().stored, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ring_that_begins_late_leaves_the_source_partial_with_what_came() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 20).await;
    let (old, new) = (Chain::new(5, 40), Chain::new(6, 10));
    publish(&mut publisher, &old, 0..40).await;
    publish(&mut publisher, &new, 0..10).await;
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    until("new chain", || picker.sink.holds(1, &new.keys)).await;
    until("partial", || source.state() == SourceState::Partial).await;
    // blocks 30…39 of the old chain wait for block 29
    assert_eq!(source.stats().orphans, 10);
    publisher.publish(&encode::cleared()).await;
    until("live", || source.state() == SourceState::Live).await;
    assert!(picker.sink.holds(1, &[]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_that_no_replay_can_fill_clears_the_source() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 5).await;
    let (old, new) = (Chain::new(7, 20), Chain::new(8, 5));
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    until("live state", || source.state() == SourceState::Live).await;
    publish(&mut publisher, &old, 0..10).await;
    until("old", || picker.sink.holds(1, &old.keys[..10])).await;
    for block in 10..20 {
        publisher.lose(&old.stored(block..block + 1));
    }
    publish(&mut publisher, &new, 0..5).await;
    until("new", || picker.sink.holds(1, &new.keys)).await;
    assert_eq!(source.state(), SourceState::Partial);
    assert_eq!(*picker.sink.clears.lock(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_publisher_starts_from_nothing() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 1_000).await;
    let (old, new) = (Chain::new(9, 10), Chain::new(10, 25));
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    until("live state", || source.state() == SourceState::Live).await;
    publish(&mut publisher, &old, 0..10).await;
    until("old", || picker.sink.holds(1, &old.keys)).await;
    let (events, replay) = (publisher.events, publisher.replay);
    drop(publisher);
    until("down", || source.state() == SourceState::Down).await;
    let mut publisher = Publisher::on(Framing::Topic, 1_000, events, replay).await;
    // it is past the old number before anyone listens again: only the payload tells them apart
    publish(&mut publisher, &new, 0..25).await;
    until("new", || picker.sink.holds(1, &new.keys)).await;
    until("live state", || source.state() == SourceState::Live).await;
    assert_eq!(source.stats().restarts, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_comes_back_with_its_memory_is_followed_on() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 1_000).await;
    let chain = Chain::new(11, 30);
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    until("live state", || source.state() == SourceState::Live).await;
    publish(&mut publisher, &chain, 0..10).await;
    until("first", || picker.sink.holds(1, &chain.keys[..10])).await;
    let (events, replay) = (publisher.events, publisher.replay);
    drop(publisher);
    until("down", || source.state() == SourceState::Down).await;
    let mut publisher = Publisher::on(Framing::Topic, 1_000, events, replay).await;
    publish(&mut publisher, &chain, 0..30).await;
    until("all", || picker.sink.holds(1, &chain.keys)).await;
    assert_eq!((source.stats().restarts, *picker.sink.clears.lock()), (0, 0));
    assert_eq!(source.stats().stored, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_replay_a_late_start_and_a_gap_are_told() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 10).await;
    let (one, two) = (Chain::new(12, 5), Chain::new(13, 5));
    let source = picker.source(1, publisher.events, None);
    until("partial", || source.state() == SourceState::Partial).await;
    publish(&mut publisher, &one, 0..5).await;
    until("one", || picker.sink.holds(1, &one.keys)).await;
    assert_eq!(source.state(), SourceState::Live);
    publisher.lose(b"");
    publish(&mut publisher, &two, 0..5).await;
    until("two", || picker.sink.holds(1, &two.keys)).await;
    assert_eq!(source.state(), SourceState::Partial);
    assert_eq!((source.stats().gaps, *picker.sink.clears.lock()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn told_of_a_restart_the_source_forgets_and_asks_again() {
    let picker = Picker::new();
    let mut publisher = Publisher::start(Framing::Topic, 1_000).await;
    let chain = Chain::new(14, 10);
    publish(&mut publisher, &chain, 0..10).await;
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    until("all", || picker.sink.holds(1, &chain.keys)).await;
    source.restarted();
    until("cleared", || *picker.sink.clears.lock() == 1).await;
    until("all again", || picker.sink.holds(1, &chain.keys)).await;
    assert_eq!(publisher.replays(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_publisher_is_asked_and_what_the_subscription_missed_is_fetched() {
    let picker = Picker::with_idle(Duration::from_millis(200));
    let mut publisher = Publisher::start(Framing::Topic, 1_000).await;
    let chain = Chain::new(15, 10);
    let source = picker.source(1, publisher.events, Some(publisher.replay));
    until("live state", || source.state() == SourceState::Live).await;
    publish(&mut publisher, &chain, 0..5).await;
    until("first", || picker.sink.holds(1, &chain.keys[..5])).await;
    for block in 5..10 {
        publisher.lose(&chain.stored(block..block + 1));
    }
    until("all", || picker.sink.holds(1, &chain.keys)).await;
    assert_eq!(source.stats().gaps, 0);
    until("live again", || source.state() == SourceState::Live).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_publisher_stops_no_other_source() {
    let picker = Picker::new();
    let mut hostile = Publisher::start(Framing::Topic, 100).await;
    let mut honest = Publisher::start(Framing::Topic, 1_000).await;
    let chain = Chain::new(16, 200);
    let bad = picker.source(1, hostile.events, Some(hostile.replay));
    let good = picker.source(2, honest.events, Some(honest.replay));
    until("subscriptions", || {
        bad.state() == SourceState::Live && good.state() == SourceState::Live
    })
    .await;
    let nested = vec![0x91_u8; 1 << 20];
    let promises = [0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0xdd, 0xff, 0xff, 0xff, 0xff];
    for block in 0..200 {
        for payload in [&nested[..], &promises, b"\xc1", &encode::orphan(block as u64)] {
            hostile.publish(payload).await;
        }
        hostile.send(0, b"again").await;
        hostile.send(u64::MAX, b"\x90").await;
        hostile.send_frames(vec![Bytes::from_static(b"one frame")]).await;
        publish(&mut honest, &chain, block..block + 1).await;
    }
    until("honest source", || picker.sink.holds(2, &chain.keys)).await;
    assert_eq!(good.state(), SourceState::Live);
    assert!(picker.sink.holds(1, &[]));
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_queue_up_and_every_source_gets_its_own() {
    let picker = Picker::new();
    let chain = Chain::new(17, 50);
    let mut publishers = Vec::new();
    for _ in 0..12 {
        let mut publisher = Publisher::start(Framing::Topic, 1_000).await;
        publish(&mut publisher, &chain, 0..50).await;
        publishers.push(publisher);
    }
    let sources: Vec<SourceHandle> = publishers
        .iter()
        .zip(0..)
        .map(|(publisher, id)| picker.source(id, publisher.events, Some(publisher.replay)))
        .collect();
    for id in 0..12 {
        until("a source", || picker.sink.holds(id, &chain.keys)).await;
    }
    for source in sources {
        source.stop().await;
    }
    assert!(picker.sink.held.lock().is_empty());
}
