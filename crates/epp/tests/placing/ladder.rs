//! The token ladder: which rung answers, and how long it may take.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use axum::http::StatusCode;
use lmetric_api::Tokens;
use lmetric_epp::tokens::{Content, Counted, GroupTokens, Rung};
use lmetric_tokenize::ModelTokenizer;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    engine::{Behaviour, Engine},
    stage::{Stage, completion, text},
};

const SETTINGS: Tokens = Tokens {
    budget: Duration::from_millis(300),
    threads: 1,
    queue: 1,
};

fn with_tokenizer(settings: Tokens) -> Stage {
    // asked at run time: checkouts that share a target folder may share this program
    let package: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let folder = package.join("../tokenize/testdata/tiny-qwen2");
    let group = GroupTokens {
        source: None,
        tokenizer: Some(Arc::new(
            ModelTokenizer::load(&folder).expect("the test tokenizer"),
        )),
        image_tokens: 100,
        trust: Arc::default(),
    };
    Stage::with(HashMap::from([("m".into(), Arc::new(group))]), settings)
}

async fn count(
    stage: &Stage,
    request: lmetric_epp::request::ParsedRequest,
    engine: Option<&Engine>,
) -> Counted {
    let engines = engine.map(|engine| engine.address).into_iter().collect();
    stage.ladder.count(&Arc::new(request), "m", || engines).await
}

fn ids(counted: &Counted) -> Vec<u32> {
    match &counted.prompts[0].content {
        Content::Exact(tokens) => tokens.ids.clone(),
        Content::Guess(tokens) => panic!("guessed: {tokens:?}"),
    }
}

#[tokio::test]
async fn ids_in_the_request_need_nobody() {
    let stage = Stage::new();
    let counted = count(&stage, completion("r", 0..40), None).await;
    assert_eq!(counted.rung, Rung::Request);
    assert_eq!(counted.prompts[0].tokens, 40);
}

#[tokio::test]
async fn the_tokenizer_makes_the_ids_that_vllm_made() {
    let stage = with_tokenizer(SETTINGS);
    let counted = count(&stage, text("r", "Hello, world!"), None).await;
    assert_eq!(counted.rung, Rung::Tokenizer);
    // captured from vLLM 0.32's /tokenize
    assert_eq!(ids(&counted), [39, 558, 366, 11, 308, 267, 1663, 0]);
}

#[tokio::test]
async fn without_a_tokenizer_the_engine_is_asked_and_tokenize_stands_in_for_render() {
    let engine = Engine::start(Behaviour {
        render: Some(json!([{"token_ids": [1, 2, 3], "features": null}])),
        tokenize: Some(json!({"count": 2, "tokens": [4, 5]})),
        ..Behaviour::default()
    })
    .await;
    let stage = Stage::new();
    let counted = count(&stage, text("r", "a b c"), Some(&engine)).await;
    assert_eq!((counted.rung, ids(&counted)), (Rung::Engine, vec![1, 2, 3]));
    engine.change(|engine| engine.render = None);
    for _ in 0..2 {
        let counted = count(&stage, text("r", "a b c"), Some(&engine)).await;
        assert_eq!((counted.rung, ids(&counted)), (Rung::Engine, vec![4, 5]));
    }
    let paths: Vec<String> = engine.asked().into_iter().map(|(path, _)| path).collect();
    let (render, tokenize) = ("/v1/completions/render", "/tokenize");
    assert_eq!(
        paths,
        [render, render, tokenize, tokenize],
        "an absent path is not asked for again"
    );
    assert_eq!(engine.asked()[3].1["prompt"], "a b c");
}

#[tokio::test]
async fn a_slow_engine_costs_no_more_than_the_budget() {
    let engine = Engine::start(Behaviour {
        render: Some(json!([{"token_ids": [1]}])),
        token_delay: Duration::from_secs(5),
        ..Behaviour::default()
    })
    .await;
    let stage = Stage::new();
    let started = Instant::now();
    let counted = count(&stage, text("r", "twelve bytes"), Some(&engine)).await;
    let took = started.elapsed();
    assert_eq!(counted.rung, Rung::Estimate);
    assert_eq!(counted.prompts[0].tokens, 3, "four bytes are a token");
    assert!(took >= Duration::from_millis(290), "{took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn no_engine_and_no_tokenizer_is_an_estimate_at_once() {
    let stage = Stage::new();
    let started = Instant::now();
    let counted = count(&stage, text("r", "twelve bytes"), None).await;
    assert_eq!(counted.rung, Rung::Estimate);
    assert!(started.elapsed() < Duration::from_millis(100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_an_estimate_at_once() {
    let stage = with_tokenizer(SETTINGS);
    // one in hand and one waiting; each takes longer than the budget even on a fast machine
    let long = Arc::new(text("long", &"many words, all alike; ".repeat(2_000_000)));
    let mut slow = Vec::new();
    for _ in 0..2 {
        let (ladder, long) = (stage.ladder.clone(), long.clone());
        slow.push(tokio::spawn(
            async move { ladder.count(&long, "m", Vec::new).await },
        ));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let started = Instant::now();
    let new = text("r", &"words that nobody wrote before; ".repeat(1_000));
    let counted = count(&stage, new, None).await;
    let took = started.elapsed();
    assert_eq!(counted.rung, Rung::Estimate);
    assert!(took < Duration::from_millis(100), "{took:?}");
    let short = count(&stage, text("s", "twelve bytes"), None).await;
    assert_eq!(short.rung, Rung::Tokenizer, "little work needs no queue");
    for slow in slow {
        assert_eq!(
            slow.await.expect("joins").rung,
            Rung::Estimate,
            "the budget holds for them too"
        );
    }
    let page = lmetric_telemetry::encode(&stage.registry).expect("encodes");
    assert!(page.contains("lmetric_token_queue_full_total 1"), "{page}");
    assert!(
        page.contains("lmetric_token_requests_total{rung=\"estimate\"} 3"),
        "{page}"
    );
}

#[tokio::test]
async fn a_tokenizer_that_lost_its_trust_is_passed_over() {
    let engine = Engine::start(Behaviour {
        render: Some(json!([{"token_ids": [9]}])),
        ..Behaviour::default()
    })
    .await;
    let stage = with_tokenizer(SETTINGS);
    assert_eq!(stage.ladder.first_rung("m"), Rung::Tokenizer);
    let trust = &stage.ladder.group("m").expect("configured").trust;
    assert!(trust.checked(100, 20));
    assert_eq!(stage.ladder.first_rung("m"), Rung::Engine);
    let counted = count(&stage, text("r", "a"), Some(&engine)).await;
    assert_eq!((counted.rung, ids(&counted)), (Rung::Engine, vec![9]));
}

#[tokio::test]
async fn an_engine_that_refuses_is_an_estimate() {
    let engine = Engine::start(Behaviour::default()).await;
    engine.change(|engine| engine.models_status = StatusCode::OK);
    let stage = Stage::new();
    let counted = count(&stage, text("r", "twelve bytes"), Some(&engine)).await;
    assert_eq!(counted.rung, Rung::Estimate);
}
