//! A pool with nobody in it, and one that is refilled.

use std::time::Duration;

use http::StatusCode;
use lmetric_testkit::{Plug, Stage, token_completion};

use crate::support::{quick, tokens};

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn an_empty_pool_is_503_until_an_endpoint_is_listed() {
    for plug in [Plug::Light, Plug::Full] {
        let stage = Stage::start(quick(plug)).await.unwrap();
        let body = token_completion(stage.model(), &tokens(1, 64), 2, false);
        stage.picker.list(&[]).unwrap();
        stage
            .admin()
            .ready_endpoints(0, Duration::from_secs(5))
            .await
            .unwrap();
        let refused = stage.client().post("/v1/completions", &body).await.unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers["content-type"], "application/json");
        let error = refused.json().unwrap()["error"].clone();
        assert_eq!(error["code"], 503);
        assert!(
            error["message"].as_str().unwrap().contains("no endpoint"),
            "{plug:?}: {error}"
        );
        let get = stage.client().get("/v1/models").await.unwrap();
        assert_eq!(get.status, StatusCode::SERVICE_UNAVAILABLE);

        stage.picker.list(&[stage.engines.entry(0)]).unwrap();
        stage
            .admin()
            .ready_endpoints(1, Duration::from_secs(5))
            .await
            .unwrap();
        let served = stage.client().post("/v1/completions", &body).await.unwrap();
        assert_eq!(served.status, StatusCode::OK, "{}", served.text());
    }
}

/// A bad endpoints file keeps the last good one in force.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_bad_endpoints_file_changes_nothing() {
    let stage = Stage::start(quick(Plug::Light)).await.unwrap();
    std::fs::write(
        stage.folder().join("endpoints.yaml"),
        "endpoints: [{address: nonsense}]",
    )
    .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let body = token_completion(stage.model(), &tokens(1, 64), 2, false);
    let served = stage.client().post("/v1/completions", &body).await.unwrap();
    assert_eq!(served.status, StatusCode::OK, "{}", served.text());
    stage
        .admin()
        .ready_endpoints(2, Duration::from_secs(1))
        .await
        .unwrap();
}
