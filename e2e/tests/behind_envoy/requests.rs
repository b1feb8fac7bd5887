//! Every kind of request through every body mode.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use lmetric_testkit::{BodyMode, Client, EnvoyConfig, Plug, Stage, chat, completion, token_completion};
use serde_json::json;

use crate::support::{decision, post_as, quick, tokens, winner};

/// Whether the picker can know the prompt when it picks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    Body,
    HeadOnly,
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn light_mode_serves_every_kind_of_request() {
    let stage = Stage::start_with(quick(Plug::Light), EnvoyConfig::trailers)
        .await
        .unwrap();
    every_kind(&stage, Sees::Body).await;
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn full_mode_serves_every_kind_of_request() {
    let stage = Stage::start_with(quick(Plug::Full), EnvoyConfig::trailers)
        .await
        .unwrap();
    every_kind(&stage, Sees::Body).await;
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn streamed_mode_serves_every_kind_of_request() {
    let change = |config: EnvoyConfig| config.trailers()?.body_mode(BodyMode::Streamed);
    let stage = Stage::start_with(quick(Plug::Light), change).await.unwrap();
    every_kind(&stage, Sees::HeadOnly).await;
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn headers_only_mode_serves_every_kind_of_request() {
    let change = |config: EnvoyConfig| config.trailers()?.body_mode(BodyMode::HeadersOnly);
    let stage = Stage::start_with(quick(Plug::Light), change).await.unwrap();
    every_kind(&stage, Sees::HeadOnly).await;
}

async fn every_kind(stage: &Stage, sees: Sees) {
    plain_and_streamed(stage, sees).await;
    bodyless(stage).await;
    large_body(stage, sees).await;
    with_trailers(stage).await;
    not_json(stage).await;
    own_destination(stage).await;
    stage.admin().idle(Duration::from_secs(5)).await.unwrap();
}

async fn plain_and_streamed(stage: &Stage, sees: Sees) {
    let (client, model) = (stage.client(), stage.model());
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(20);
    let ids = tokens(1, 100);
    let bodies = [
        (
            "/v1/chat/completions",
            [false, true].map(|stream| chat(model, &text, 8, stream)),
        ),
        (
            "/v1/completions",
            [false, true].map(|stream| completion(model, &text, 8, stream)),
        ),
        (
            "/v1/completions",
            [false, true].map(|stream| token_completion(model, &ids, 8, stream)),
        ),
    ];
    for (n, (path, [plain, streamed])) in bodies.into_iter().enumerate() {
        let id = format!("plain-{n}");
        let answer = post_as(stage, &id, path, &plain).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        let usage = answer.json().unwrap()["usage"].clone();
        assert_eq!(usage["completion_tokens"], 8);
        if sees == Sees::Body {
            let decision = decision(stage, &id).await.unwrap();
            assert_eq!(
                decision["tokens"], usage["prompt_tokens"],
                "{path}: the picker counts as the engine does"
            );
        }

        let stream = client.stream(path, &[], &streamed).await.unwrap();
        assert_eq!(stream.headers["content-type"], "text/event-stream; charset=utf-8");
        let (chunks, streamed_usage) = stream.finish().await.unwrap();
        assert_eq!(chunks, 8, "{path}: one chunk for each token");
        assert_eq!(streamed_usage.unwrap()["prompt_tokens"], usage["prompt_tokens"]);
    }
}

async fn bodyless(stage: &Stage) {
    let models = stage.client().get("/v1/models").await.unwrap();
    assert_eq!(models.status, StatusCode::OK);
    assert_eq!(models.json().unwrap()["data"][0]["id"], stage.model());
    let nowhere = stage.client().get("/no/such/path").await.unwrap();
    assert_eq!(
        nowhere.status,
        StatusCode::NOT_FOUND,
        "the engine's answer, not ours: {}",
        nowhere.text()
    );
    let empty = stage
        .client()
        .exchange("POST", "/no/such/path", &[], Bytes::new())
        .await
        .unwrap();
    assert_eq!(empty.status, StatusCode::NOT_FOUND);
    let posted = stage
        .client()
        .post("/no/such/path", &json!({"any": "thing"}))
        .await
        .unwrap();
    assert_eq!(posted.status, StatusCode::NOT_FOUND);
}

async fn large_body(stage: &Stage, sees: Sees) {
    let mut body = token_completion(stage.model(), &tokens(2, 64), 2, false);
    body["user"] = json!("x".repeat(5 << 20));
    let id = "large";
    let answer = post_as(stage, id, "/v1/completions", &body).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.json().unwrap()["usage"]["prompt_tokens"], 64);
    if sees == Sees::Body {
        assert_eq!(decision(stage, id).await.unwrap()["tokens"], 64);
    }
}

async fn with_trailers(stage: &Stage) {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("abc"));
    let body = token_completion(stage.model(), &tokens(3, 64), 2, false).to_string();
    let body = Full::new(Bytes::from(body)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let headers = [("trailer", "x-checksum"), ("transfer-encoding", "chunked")];
    let answer = stage
        .client()
        .exchange_body("POST", "/v1/completions", &headers, body)
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
}

async fn not_json(stage: &Stage) {
    for body in ["{\"model\": ", "[]", "\"text\"", "\u{0}"] {
        let answer = stage
            .client()
            .exchange("POST", "/v1/chat/completions", &[], Bytes::from(body))
            .await
            .unwrap();
        assert_eq!(
            answer.status,
            StatusCode::BAD_REQUEST,
            "{body:?}: {}",
            answer.text()
        );
        let error = &answer.json().unwrap()["error"];
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty()),
            "{error}"
        );
        assert_eq!(error["code"], 400);
    }
}

async fn own_destination(stage: &Stage) {
    let body = token_completion(stage.model(), &tokens(4, 64), 2, false).to_string();
    let headers = [
        ("x-gateway-destination-endpoint", "127.0.0.1:1"),
        ("x-request-id", "own"),
        ("x-data-parallel-rank", "7"),
    ];
    let answer = stage
        .client()
        .exchange("POST", "/v1/completions", &headers, Bytes::from(body))
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert!(
        stage
            .engines
            .addresses()
            .contains(&winner(stage, "own").await.unwrap())
    );
}

/// 200 requests on one connection pool: the answers are those of the engine itself.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn what_comes_back_is_what_the_engine_said() {
    for plug in [Plug::Light, Plug::Full] {
        let stage = Stage::start(quick(plug)).await.unwrap();
        let mut body = token_completion(stage.model(), &tokens(5, 40), 16, false);
        body["seed"] = json!(7);
        let through = stage.client().post("/v1/completions", &body).await.unwrap();
        let direct: Client = stage.engines.client(0);
        let direct = direct.post("/v1/completions", &body).await.unwrap();
        assert_eq!(through.status, direct.status);
        let text = |answer: &lmetric_testkit::Answer| answer.json().unwrap()["choices"].clone();
        assert_eq!(text(&through), text(&direct));
        assert_eq!(through.headers["content-type"], direct.headers["content-type"]);
    }
}
