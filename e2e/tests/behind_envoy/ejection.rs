//! Engines that fail at once would look idle and draw everything.

use std::time::Duration;

use futures::{StreamExt, stream};
use lmetric_testkit::{Plug, Stage, StageOptions, token_completion};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{post_as, tokens, winner};

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn of_eight_engines_one_refuses_and_one_fails_and_hardly_anybody_notices() {
    let mut options = StageOptions::new(Plug::Light).fleet(8, 20.0);
    options.picker.speed = 1.0;
    let stage = Stage::start(options).await.unwrap();
    stage.engines.fault(2, json!({"kind": "refuse"})).await.unwrap();
    stage
        .engines
        .fault(5, json!({"kind": "status", "status": 503}))
        .await
        .unwrap();

    let (client, model) = (stage.client(), stage.model());
    let one = |n: u64| {
        let body = token_completion(model, &tokens(n, 200), 4, false);
        let client = client.clone();
        async move {
            client
                .post("/v1/completions", &body)
                .await
                .unwrap()
                .status
                .is_success()
        }
    };
    let ok = stream::iter(0..500)
        .map(one)
        .buffer_unordered(16)
        .filter(|ok| std::future::ready(*ok))
        .count()
        .await;
    println!("500 requests, {} errors", 500 - ok);
    assert!(500 - ok <= 10, "{} errors", 500 - ok);

    for n in [2, 5] {
        stage.engines.fault(n, json!({"kind": "none"})).await.unwrap();
    }
    let recovered = Instant::now();
    let mut missing = vec![stage.engines.address(2), stage.engines.address(5)];
    for n in 0_u64.. {
        let id = format!("after-{n}");
        let body = token_completion(model, &tokens(1_000 + n, 200), 4, false);
        let answer = post_as(&stage, &id, "/v1/completions", &body).await.unwrap();
        if answer.status.is_success() {
            let served = winner(&stage, &id).await.unwrap();
            missing.retain(|address| *address != served);
        }
        if missing.is_empty() {
            break;
        }
        assert!(
            recovered.elapsed() < Duration::from_secs(30),
            "not back: {missing:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("both back after {:?}", recovered.elapsed());
}
