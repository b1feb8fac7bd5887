//! Reconciling the endpoint set, and what scrapes do to it.

use lmetric_api::ModelGroup;
use lmetric_epp::{discovery::Endpoint, fleet::Resolved};
use lmetric_kvevents::{Op, SourceState};
use lmetric_prefix::{BlockKey, BlockSize};
use serde_json::json;

use crate::{
    engine::{Behaviour, Engine},
    stage::{News, Stage, endpoint, events, wait_for},
};

fn store(parent: u64, key: u64) -> Op {
    Op::Store {
        parent: BlockKey::from_raw(parent),
        key: BlockKey::from_raw(key),
    }
}

#[tokio::test]
async fn a_listed_engine_becomes_ready_with_its_block_size_and_source() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.reconciler.apply(&[endpoint(engine.address)]);
    assert!(
        !stage.scheduler.endpoints(stage.clock.now())[0].ready,
        "nothing answered yet"
    );
    stage.ready(1).await;
    assert_eq!(stage.recorder.news(), [News::Started(events(engine.address))]);
    let spaces = stage.scheduler.spaces();
    assert_eq!(spaces[0].block_size, BlockSize::new(16).expect("not zero"));
    assert_eq!(&*spaces[0].group, "m");
}

#[tokio::test]
async fn the_scheduler_learns_the_size_and_the_use_of_an_engines_cache() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    // the first page may come before the block size is known
    wait_for("a scrape", || {
        let view = &stage.scheduler.endpoints(stage.clock.now())[0];
        // 1,024 blocks of 16 tokens, a quarter in use
        (view.kv_tokens, view.kv_used) == (Some(16_384), Some(4_096))
    })
    .await;
}

#[tokio::test]
async fn a_slot_is_given_away_only_after_its_blocks_are_gone() {
    let engines = [
        Engine::start(Behaviour::default()).await,
        Engine::start(Behaviour::default()).await,
    ];
    let mut stage = Stage::new();
    stage.reconciler.apply(&[endpoint(engines[0].address)]);
    let source = events(engines[0].address);
    let slot = stage.recorder.spec(&source).id;
    stage.recorder.apply(&source, &[store(1, 2), store(2, 3)]);
    assert_eq!(stage.index.read().held_by(slot), 2);

    // the first leaves and another comes in one set: its slot is another one
    stage.reconciler.apply(&[endpoint(engines[1].address)]);
    let other = stage.recorder.spec(&events(engines[1].address)).id;
    assert_ne!(other, slot);
    // an event that was still on its way
    stage.recorder.apply(&source, &[store(3, 4)]);
    wait_for("the source to stop", || {
        stage.recorder.news().contains(&News::Stopped(source.clone()))
    })
    .await;
    wait_for("the index to be clear", || stage.index.read().held_by(slot) == 0).await;

    // now it is free
    stage
        .reconciler
        .apply(&[endpoint(engines[1].address), endpoint(engines[0].address)]);
    assert_eq!(stage.recorder.spec(&source).id, slot);
    assert_eq!(stage.index.read().held_by(slot), 0);
}

#[tokio::test]
async fn an_endpoint_whose_model_joins_another_group_is_taken_anew() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    let group = ModelGroup {
        names: vec!["family".to_owned(), "m".to_owned()],
        tokenizer: None,
        image_tokens: 1,
    };
    stage.names.set(std::slice::from_ref(&group));
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    assert!(
        stage
            .fleet
            .members()
            .iter()
            .all(|member| &*member.group == "family")
    );
    let started = News::Started(events(engine.address));
    let count = |stage: &Stage| {
        stage
            .recorder
            .news()
            .iter()
            .filter(|news| **news == started)
            .count()
    };
    assert_eq!(
        count(&stage),
        2,
        "its blocks are told again, under the new group's keys"
    );
    stage.names.set(&[group]);
    stage.reconciler.apply(&[endpoint(engine.address)]);
    assert_eq!(count(&stage), 2, "the same groups change nothing");
}

#[tokio::test]
async fn another_incarnation_restarts_the_source_and_closes_reservations() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    let request = crate::stage::completion("r", 0..64);
    let placement = lmetric_epp::guard::Place::place(&stage.picker, request.into())
        .await
        .expect("placed");
    assert_eq!(stage.scheduler.open(), 1);
    let again = Endpoint {
        incarnation: "2".to_owned(),
        ..endpoint(engine.address)
    };
    stage.reconciler.apply(std::slice::from_ref(&again));
    assert_eq!(stage.scheduler.open(), 0);
    let restarted = News::Restarted(events(engine.address));
    assert_eq!(stage.recorder.news().last(), Some(&restarted));
    drop(placement);
    assert_eq!(stage.scheduler.counters().released.iter().sum::<u64>(), 1);
    stage.reconciler.apply(&[again]);
    assert_eq!(stage.recorder.news().len(), 2, "the same set changes nothing");
}

#[tokio::test]
async fn terminating_asleep_and_dead_engines_get_nothing() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    let alive = endpoint(engine.address);
    stage.reconciler.apply(std::slice::from_ref(&alive));
    stage.ready(1).await;
    stage.reconciler.apply(&[Endpoint {
        terminating: true,
        ..alive.clone()
    }]);
    assert!(
        !stage.scheduler.endpoints(stage.clock.now())[0].ready,
        "terminating"
    );
    stage.reconciler.apply(&[alive]);
    stage.ready(1).await;
    engine.change(|engine| engine.awake = false);
    stage.ready(0).await;
    engine.change(|engine| engine.awake = true);
    stage.ready(1).await;
    drop(engine);
    stage.ready(0).await;
}

#[tokio::test]
async fn a_new_process_behind_the_same_address_restarts_the_source() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    engine.change(|engine| engine.started = 2_000.0);
    wait_for("the restart to be noticed", || {
        stage
            .recorder
            .news()
            .contains(&News::Restarted(events(engine.address)))
    })
    .await;
    let scrapes = engine.scrapes();
    wait_for("two more scrapes", || engine.scrapes() >= scrapes + 2).await;
    assert_eq!(stage.recorder.news().len(), 2, "one restart is noticed once");
}

#[tokio::test]
async fn event_endpoints_that_are_not_given_are_asked_of_the_engine() {
    let engine = Engine::start(Behaviour {
        sources: Some(json!({
            "0": {"enable_kv_cache_events": true, "endpoint": "tcp://*:5600", "replay_endpoint": "tcp://*:5700"},
            "1": {"enable_kv_cache_events": true, "endpoint": "tcp://*:5601", "replay_endpoint": null},
        })),
        ..Behaviour::default()
    })
    .await;
    let mute = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    let untold = |rank, engine: &Engine| Endpoint {
        rank,
        events: None,
        ..endpoint(engine.address)
    };
    stage.reconciler.apply(&[
        untold(Some(0), &engine),
        untold(Some(1), &engine),
        untold(None, &mute),
    ]);
    wait_for("two sources", || stage.recorder.news().len() == 2).await;
    let rank = stage.recorder.spec("tcp://127.0.0.1:5601");
    assert_eq!((rank.rank, rank.replay), (Some(1), None));
    assert_eq!(
        stage.recorder.spec("tcp://127.0.0.1:5600").replay.as_deref(),
        Some("tcp://127.0.0.1:5700")
    );
    wait_for("the mute engine to be known as mute", || {
        let members = stage.fleet.members();
        !members.at(mute.address)[0].wants_source()
    })
    .await;
    assert_eq!(stage.recorder.news().len(), 2);
}

#[tokio::test]
async fn an_unknown_model_is_one_that_every_engine_lately_said_it_lacks() {
    let engines = [
        Engine::start(Behaviour::default()).await,
        Engine::start(Behaviour::default()).await,
    ];
    let mut stage = Stage::new();
    stage
        .reconciler
        .apply(&[endpoint(engines[0].address), endpoint(engines[1].address)]);
    stage.ready(2).await;
    assert_eq!(
        stage.fleet.resolve("nope").await,
        Resolved::Unknown(vec!["m".to_owned()])
    );

    // a forced read finds what was loaded since
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    engines[1].change(|engine| engine.models.push(("sql", true)));
    let Resolved::Listed(listed) = stage.fleet.resolve("sql").await else {
        panic!("the adapter is listed by one engine");
    };
    assert!(listed.adapter && listed.partial);
    let lists = engines[0].lists();
    for _ in 0..50 {
        stage.fleet.resolve("nope").await;
    }
    assert!(
        engines[0].lists() <= lists + 1,
        "nonsense does not become a storm of reads"
    );

    // an engine that does not tell may serve it
    let third = Engine::start(Behaviour {
        models_status: axum::http::StatusCode::UNAUTHORIZED,
        ..Behaviour::default()
    })
    .await;
    stage.reconciler.apply(&[
        endpoint(engines[0].address),
        endpoint(engines[1].address),
        endpoint(third.address),
    ]);
    wait_for("the third to be ready", || {
        stage
            .scheduler
            .endpoints(stage.clock.now())
            .iter()
            .all(|view| view.ready)
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert_eq!(stage.fleet.resolve("nope").await, Resolved::Perhaps);
}

#[tokio::test]
async fn sources_that_are_not_current_do_not_move_the_ledger() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.recorder.be(SourceState::Stale);
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    let request = crate::stage::completion("r", 0..1_600);
    let _placement = lmetric_epp::guard::Place::place(&stage.picker, request.into())
        .await
        .expect("placed");
    // at 8,000 tokens a second Q is gone by rate
    wait_for("Q to fall by rate", || {
        stage.fleet.tick();
        stage.scheduler.endpoints(stage.clock.now())[0].q == 0
    })
    .await;
    assert_eq!(stage.scheduler.counters().released_by_rate, 1);
}
