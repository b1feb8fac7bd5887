//! Load that reaches the engines past the picker.

use std::time::Duration;

use lmetric_testkit::{Plug, Stage, StageOptions, eventually, token_completion};

use crate::support::tokens;

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn requests_that_bypass_the_picker_are_counted_within_four_scrapes() {
    let stage = Stage::start(StageOptions::new(Plug::Light).fleet(2, 1.0))
        .await
        .unwrap();
    let foreign = || async {
        Ok(stage
            .admin()
            .endpoints()
            .await?
            .values()
            .map(|one| one.foreign_bs)
            .sum::<u64>())
    };
    // own load, so that every endpoint is scraped each second
    let mut own = Vec::new();
    for n in 0..4 {
        let body = token_completion(stage.model(), &tokens(n, 50), 20_000, false);
        let client = stage.client();
        own.push(tokio::spawn(async move {
            client.post("/v1/completions", &body).await
        }));
    }
    stage
        .admin()
        .load_becomes("own load", Duration::from_secs(5), |_, bs| bs == 4)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(foreign().await.unwrap(), 0, "own requests are not foreign");

    let mut bypassing = Vec::new();
    for n in 0..20 {
        let body = token_completion(stage.model(), &tokens(100 + n, 50), 20_000, false);
        let client = stage.engines.client((n % 2) as u8);
        bypassing.push(tokio::spawn(async move {
            client.post("/v1/completions", &body).await
        }));
    }
    let limit = Duration::from_secs(5);
    let seen = eventually("the bypassing requests to be seen", limit, foreign, |seen| {
        *seen >= 18
    })
    .await
    .unwrap();
    assert!(seen <= 20, "{seen}");
    for request in bypassing {
        request.abort();
    }
    eventually("them to be forgotten", Duration::from_secs(8), foreign, |seen| {
        *seen == 0
    })
    .await
    .unwrap();
    for request in own {
        request.abort();
    }
}
