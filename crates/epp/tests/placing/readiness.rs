//! When a picker that starts may say that it is ready.

use std::{sync::Arc, time::Duration};

use lmetric_epp::{discovery::EndpointSet, housekeeping::Starting};
use lmetric_kvevents::SourceState;
use lmetric_telemetry::Readiness;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{Behaviour, Engine},
    stage::{Stage, endpoint, wait_for},
};

#[tokio::test]
async fn ready_is_after_endpoints_answered_and_sources_are_replayed() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.recorder.be(SourceState::Stale);
    let readiness = Readiness::default();
    let starting = Starting::new(readiness.clone(), stage.fleet.clone());
    let (sets, seen) = watch::channel(None);
    let token = CancellationToken::new();
    let task = tokio::spawn(starting.run(seen, token.clone()));
    assert!(
        readiness.reasons().contains("endpoints are not known"),
        "{}",
        readiness.reasons()
    );

    let set: EndpointSet = Arc::new([endpoint(engine.address)]);
    sets.send_replace(Some(set.clone()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!readiness.is_ready(), "known but not reconciled");
    stage.reconciler.apply(&set);
    wait_for("the endpoint to have answered", || {
        !readiness.reasons().contains("endpoints:")
    })
    .await;
    assert!(
        readiness.reasons().contains("1 of 1 sources"),
        "{}",
        readiness.reasons()
    );
    stage.recorder.be(SourceState::Partial);
    wait_for("the source to be replayed", || readiness.is_ready()).await;
    // what happens later does not take it back
    stage.recorder.be(SourceState::Stale);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(readiness.is_ready());
    token.cancel();
    task.await.expect("ends");
}

#[tokio::test]
async fn an_engine_that_is_not_there_does_not_keep_the_picker_waiting() {
    let gone = Engine::start(Behaviour::default()).await.address;
    let mut stage = Stage::new();
    stage.recorder.be(SourceState::Down);
    let readiness = Readiness::default();
    let starting = Starting::new(readiness.clone(), stage.fleet.clone());
    let (sets, seen) = watch::channel(None);
    let token = CancellationToken::new();
    tokio::spawn(starting.run(seen, token.clone()));
    let set: EndpointSet = Arc::new([endpoint(gone)]);
    sets.send_replace(Some(set.clone()));
    stage.reconciler.apply(&set);
    let started = tokio::time::Instant::now();
    wait_for("readiness", || readiness.is_ready()).await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    token.cancel();
}

#[tokio::test]
async fn a_pool_of_nobody_is_ready_at_once() {
    let stage = Stage::new();
    let readiness = Readiness::default();
    let starting = Starting::new(readiness.clone(), stage.fleet.clone());
    let (sets, seen) = watch::channel(None);
    let token = CancellationToken::new();
    tokio::spawn(starting.run(seen, token.clone()));
    sets.send_replace(Some(Arc::new([])));
    wait_for("readiness", || readiness.is_ready()).await;
    token.cancel();
}

#[tokio::test]
async fn a_source_that_is_never_replayed_is_waited_for_ten_seconds() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.recorder.be(SourceState::Stale);
    let readiness = Readiness::default();
    let starting = Starting::new(readiness.clone(), stage.fleet.clone());
    let (sets, seen) = watch::channel(None);
    let token = CancellationToken::new();
    tokio::spawn(starting.run(seen, token.clone()));
    let set: EndpointSet = Arc::new([endpoint(engine.address)]);
    sets.send_replace(Some(set.clone()));
    let started = tokio::time::Instant::now();
    stage.reconciler.apply(&set);
    while !readiness.is_ready() {
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(20), "{}", readiness.reasons());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let waited = started.elapsed();
    assert!(waited >= Duration::from_secs(9), "{waited:?}");
    token.cancel();
}
