//! Requests placed on two engines.

use std::sync::Arc;

use lmetric_epp::{guard::Place, refusal::RefusalKind, request::ParsedRequest};
use lmetric_kvevents::{Op, SourceState};
use lmetric_prefix::{BlockSize, Chain, KeySpace};
use lmetric_scheduler::{Outcome, Subset};

use crate::{
    engine::{Behaviour, Engine},
    stage::{News, Stage, completion, endpoint, events, wait_for},
};

async fn two() -> (Stage, [Engine; 2]) {
    let engines = [
        Engine::start(Behaviour::default()).await,
        Engine::start(Behaviour {
            models: vec![("m", false), ("sql", true)],
            ..Behaviour::default()
        })
        .await,
    ];
    let mut stage = Stage::new();
    stage
        .reconciler
        .apply(&[endpoint(engines[0].address), endpoint(engines[1].address)]);
    stage.ready(2).await;
    (stage, engines)
}

/// Store events for the blocks of a prompt, as the engine's source would apply them.
fn stored(stage: &Stage, lora: Option<&str>, salt: Option<&str>, ids: &[u32]) -> Vec<Op> {
    let block_size = BlockSize::new(16).expect("not zero");
    let root = stage.seed.root(&KeySpace {
        group: "m",
        lora,
        salt,
        block_size,
    });
    let chain = Chain::new(root, block_size, ids);
    let mut parent = root;
    chain
        .keys
        .iter()
        .map(|key| Op::Store {
            parent: std::mem::replace(&mut parent, *key),
            key: *key,
        })
        .collect()
}

async fn place(stage: &Stage, request: ParsedRequest) -> lmetric_epp::guard::Placement {
    stage.picker.place(request.into()).await.expect("placed")
}

#[tokio::test]
async fn a_prompt_goes_where_its_blocks_are_and_its_events_lower_q() {
    let (stage, engines) = two().await;
    let ids: Vec<u32> = (0..1_000).collect();
    let holder = events(engines[1].address);
    stage
        .recorder
        .apply(&holder, &stored(&stage, None, None, &ids[..800]));
    let mut placement = place(&stage, completion("r", ids.clone())).await;
    assert_eq!(placement.pick().address, engines[1].address);
    assert_eq!(placement.pick().hit_tokens, 800);
    let q = || {
        let views = stage.scheduler.endpoints(stage.clock.now());
        views.iter().map(|view| view.q).sum::<u64>()
    };
    assert_eq!(q(), 200);
    let rest = stored(&stage, None, None, &ids);
    stage.recorder.apply(&holder, &rest[50..55]);
    assert_eq!(q(), 120);
    placement.first_output();
    assert_eq!(q(), 0);
    placement.finish(Outcome::Done);
    assert_eq!(stage.scheduler.open(), 0);
}

#[tokio::test]
async fn copies_of_a_cold_prompt_see_each_other() {
    let (stage, engines) = two().await;
    let mut placements = Vec::new();
    for at in 0..4 {
        placements.push(place(&stage, completion(&format!("r{at}"), 0..640)).await);
    }
    for engine in &engines {
        let here = placements
            .iter()
            .filter(|placement| placement.pick().address == engine.address);
        assert_eq!(here.count(), 2);
    }
    drop(placements);
    assert_eq!(
        stage.scheduler.open(),
        0,
        "a dropped placement gives its reservation back"
    );
}

#[tokio::test]
async fn salt_and_adapter_keep_blocks_apart() {
    let (stage, engines) = two().await;
    let ids: Vec<u32> = (0..320).collect();
    let second = events(engines[1].address);
    stage
        .recorder
        .apply(&second, &stored(&stage, Some("sql"), None, &ids));
    stage
        .recorder
        .apply(&second, &stored(&stage, None, Some("s"), &ids[..160]));
    let hit = async |request: ParsedRequest| place(&stage, request).await.pick().hit_tokens;
    assert_eq!(hit(completion("plain", ids.clone())).await, 0);
    let salted = ParsedRequest {
        cache_salt: Some("s".to_owned()),
        ..completion("salted", ids.clone())
    };
    assert_eq!(hit(salted).await, 160);
    let adapted = ParsedRequest {
        model: Some("sql".to_owned()),
        ..completion("adapted", ids.clone())
    };
    // a prompt of whole blocks must compute its last one
    assert_eq!(hit(adapted).await, 304);
}

#[tokio::test]
async fn an_adapter_goes_only_to_engines_that_list_it() {
    let (stage, engines) = two().await;
    let mut placements = Vec::new();
    for at in 0..6 {
        let request = ParsedRequest {
            model: Some("sql".to_owned()),
            ..completion(&format!("r{at}"), at * 100..at * 100 + 64)
        };
        placements.push(place(&stage, request).await);
    }
    assert!(
        placements
            .iter()
            .all(|placement| placement.pick().address == engines[1].address)
    );
}

#[tokio::test]
async fn refusals_say_what_is_wrong() {
    let (stage, engines) = two().await;
    let unknown = ParsedRequest {
        model: Some("nope".to_owned()),
        ..completion("r", 0..64)
    };
    let refusal = stage.picker.place(unknown.into()).await.err().expect("refused");
    assert_eq!(refusal.kind, RefusalKind::UnknownModel);
    assert!(refusal.message.contains("m, sql"), "{refusal}");

    let elsewhere = ParsedRequest {
        subset: Some(Subset(vec![([10, 0, 0, 1].into(), None)])),
        ..completion("r", 0..64)
    };
    let refusal = stage.picker.place(elsewhere.into()).await.err().expect("refused");
    assert_eq!(refusal.kind, RefusalKind::NoEndpoint);
    assert!(refusal.message.contains("subset"), "{refusal}");

    drop(engines);
    stage.ready(0).await;
    let refusal = stage
        .picker
        .place(completion("r", 0..64).into())
        .await
        .err()
        .expect("refused");
    assert_eq!(refusal.status(), 503);
}

#[tokio::test]
async fn requests_without_model_or_prompt_are_placed_by_load() {
    let (stage, _engines) = two().await;
    let bare = ParsedRequest {
        model: None,
        prompts: Vec::new(),
        ..completion("r", [])
    };
    let first = place(&stage, bare.clone()).await;
    let second = place(&stage, bare).await;
    assert_ne!(first.pick().address, second.pick().address);
}

#[tokio::test]
async fn a_report_is_announced_to_the_source_of_the_chosen_engine() {
    let (stage, engines) = two().await;
    stage.recorder.apply(
        &events(engines[0].address),
        &stored(&stage, None, None, &(0..160).collect::<Vec<_>>()),
    );
    let request = ParsedRequest {
        report_mode: true,
        ..completion("r", 0..160)
    };
    let _placement = place(&stage, request).await;
    let reported = News::Reported(events(engines[0].address), 10);
    assert_eq!(stage.recorder.news().last(), Some(&reported));
}

#[tokio::test]
async fn cached_tokens_of_a_partial_source_teach_it() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.recorder.be(SourceState::Partial);
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    let mut placement = place(&stage, completion("r", 0..320)).await;
    assert_eq!(placement.pick().hit_tokens, 0);
    placement.cached_tokens(160);
    let inferred = News::Inferred(events(engine.address), 10);
    assert_eq!(stage.recorder.news().last(), Some(&inferred));
}

#[tokio::test]
async fn load_that_is_not_ours_is_seen_and_keeps_requests_away() {
    let (stage, engines) = two().await;
    engines[0].change(|engine| {
        engine.running = 6;
        engine.waiting = 2;
    });
    wait_for("the foreign load to be seen", || {
        stage.fleet.tick();
        let views = stage.scheduler.endpoints(stage.clock.now());
        views.iter().any(|view| view.foreign_bs == 8)
    })
    .await;
    let mut placements = Vec::new();
    // the product lets own queued tokens weigh more than foreign requests from about the fifth on
    for at in 0..3_u32 {
        let request: Arc<ParsedRequest> = completion(&format!("r{at}"), at * 100..at * 100 + 64).into();
        placements.push(stage.picker.place(request).await.expect("placed"));
    }
    assert!(
        placements
            .iter()
            .all(|placement| placement.pick().address == engines[1].address)
    );
}
