//! A failed request makes its engine read at once.

use std::time::Duration;

use lmetric_api::Scrape;
use lmetric_epp::{guard::Place, tokens::GroupMap};
use lmetric_scheduler::Outcome;

use crate::{
    engine::{Behaviour, Engine},
    stage::{SCRAPE, Stage, TOKENS, completion, endpoint, wait_for},
};

/// Idle engines are read once and then not again while a test runs.
const ONCE: Scrape = Scrape {
    busy: Duration::from_millis(100),
    idle: Duration::from_hours(1),
    ..SCRAPE
};

async fn one_engine(scrape: Scrape) -> (Stage, Engine) {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::reading(scrape, GroupMap::new(), TOKENS);
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    (stage, engine)
}

async fn one_request(stage: &Stage, outcome: Outcome) {
    let request = completion("r", 0..64);
    let mut placed = stage.picker.place(request.into()).await.expect("placed");
    placed.finish(outcome);
}

#[tokio::test]
async fn one_failed_request_takes_out_an_idle_engine_that_refuses() {
    for outcome in [Outcome::ServerError, Outcome::Unreachable] {
        let (stage, engine) = one_engine(ONCE).await;
        drop(engine);
        tokio::time::sleep(ONCE.busy * 4).await;
        stage.ready(1).await;
        one_request(&stage, outcome).await;
        stage.ready(0).await;
    }
}

#[tokio::test]
async fn an_engine_that_the_gateway_passed_over_is_read() {
    let (stage, engine) = one_engine(ONCE).await;
    drop(engine);
    let request = completion("r", 0..64);
    let mut placed = stage.picker.place(request.into()).await.expect("placed");
    placed.served_by(([10, 0, 0, 9], 8000).into());
    placed.finish(Outcome::Done);
    stage.ready(0).await;
}

#[tokio::test]
async fn requests_that_end_otherwise_cause_no_reads() {
    let (stage, engine) = one_engine(ONCE).await;
    let scrapes = engine.scrapes();
    for outcome in [Outcome::Done, Outcome::ClientAbort, Outcome::Unknown] {
        one_request(&stage, outcome).await;
    }
    tokio::time::sleep(ONCE.busy * 4).await;
    assert_eq!(engine.scrapes(), scrapes);
}

#[tokio::test]
async fn an_engine_that_answers_with_errors_is_not_read_for_each() {
    let slowly = Scrape {
        busy: Duration::from_secs(5),
        ..ONCE
    };
    let (stage, engine) = one_engine(slowly).await;
    let before = engine.scrapes();
    for _ in 0..50 {
        one_request(&stage, Outcome::ServerError).await;
    }
    wait_for("a read", || engine.scrapes() > before).await;
    for _ in 0..50 {
        one_request(&stage, Outcome::ServerError).await;
    }
    tokio::time::sleep(slowly.busy / 10).await;
    assert_eq!(engine.scrapes(), before + 1);
}
