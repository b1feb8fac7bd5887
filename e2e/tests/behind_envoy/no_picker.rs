//! What the shipped Envoy configurations do while no picker answers.

use http::StatusCode;
use lmetric_testkit::{Envoy, Loopback, Plug, Stage, token_completion};

async fn envoy_alone(plug: Plug) -> (Envoy, Loopback, tempfile::TempDir) {
    let net = Loopback::lease().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = Stage::envoy_config(&net, plug, false).unwrap();
    (Envoy::start(&config, folder.path()).await.unwrap(), net, folder)
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn without_a_picker_every_request_gets_503_in_openai_shape() {
    let (envoy, _net, _folder) = envoy_alone(Plug::Light).await;
    let client = envoy.client();
    let post = client
        .post("/v1/completions", &token_completion("m", &[1, 2, 3], 1, false))
        .await
        .unwrap();
    let get = client.get("/v1/models").await.unwrap();
    for answer in [post, get] {
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers["content-type"], "application/json");
        assert_eq!(answer.json().unwrap()["error"]["code"], 503);
    }
}

/// Envoy's own admin port stands for an address that a client must not reach through the gateway.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_client_cannot_choose_an_address_by_sending_the_destination_header() {
    for plug in [Plug::Light, Plug::Full] {
        let (envoy, net, _folder) = envoy_alone(plug).await;
        let admin = net.at(250, 9901).to_string();
        let headers = [("x-gateway-destination-endpoint", admin.as_str())];
        let answer = envoy
            .client()
            .exchange("GET", "/ready", &headers, bytes::Bytes::new())
            .await
            .unwrap();
        assert_eq!(
            answer.status,
            StatusCode::SERVICE_UNAVAILABLE,
            "{plug:?}: {}",
            answer.text()
        );
    }
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn in_full_mode_a_missing_picker_is_503_and_not_500() {
    let (envoy, _net, _folder) = envoy_alone(Plug::Full).await;
    let body = token_completion("m", &[1, 2, 3], 1, false);
    let answer = envoy.client().post("/v1/completions", &body).await.unwrap();
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
}
