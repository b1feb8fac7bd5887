//! A subset of the endpoints that filters in front of the picker allow.

use std::net::SocketAddr;

use bytes::Bytes;
use http::StatusCode;
use lmetric_testkit::{Answer, EnvoyConfig, Plug, Stage, StageOptions, token_completion};

use crate::support::{tokens, winner};

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_subset_hint_is_obeyed_as_string_and_as_list() {
    for plug in [Plug::Light, Plug::Full] {
        let options = StageOptions::new(plug).fleet(4, 20.0);
        let stage = Stage::start_with(options, EnvoyConfig::subset_from_header)
            .await
            .unwrap();
        let [a, b] = [stage.engines.address(1), stage.engines.address(3)];

        for n in 0..6 {
            let id = format!("string-{n}");
            let answer = hinted(&stage, &id, ("x-subset", &format!("{a}, {b}"))).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            assert!([a, b].contains(&winner(&stage, &id).await.unwrap()));
        }
        for n in 0..3 {
            let id = format!("list-{n}");
            let answer = hinted(&stage, &id, ("x-subset-list", &list_value(&[a]))).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            assert_eq!(winner(&stage, &id).await.unwrap(), a);
        }
        let by_ip = hinted(&stage, "ip", ("x-subset", &b.ip().to_string())).await;
        assert_eq!(by_ip.status, StatusCode::OK, "{}", by_ip.text());
        assert_eq!(winner(&stage, "ip").await.unwrap(), b);

        for hint in [
            ("x-subset", "127.0.0.9:8000"),
            ("x-subset-list", &list_value(&[])),
        ] {
            let answer = hinted(&stage, "nobody", hint).await;
            assert_eq!(
                answer.status,
                StatusCode::SERVICE_UNAVAILABLE,
                "{plug:?} {hint:?}: {}",
                answer.text()
            );
            assert_eq!(answer.json().unwrap()["error"]["code"], 503);
        }
    }
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_get_obeys_the_subset_too() {
    let options = StageOptions::new(Plug::Light).fleet(3, 20.0);
    let stage = Stage::start_with(options, EnvoyConfig::subset_from_header)
        .await
        .unwrap();
    let a = stage.engines.address(2).to_string();
    let headers = [("x-subset", a.as_str()), ("x-request-id", "get")];
    let answer = stage
        .client()
        .exchange("GET", "/v1/models", &headers, Bytes::new())
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(winner(&stage, "get").await.unwrap().to_string(), a);
    let headers = [("x-subset", "10.0.0.1")];
    let answer = stage
        .client()
        .exchange("GET", "/v1/models", &headers, Bytes::new())
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
}

async fn hinted(stage: &Stage, id: &str, hint: (&str, &str)) -> Answer {
    let body = token_completion(stage.model(), &tokens(1, 64), 2, false).to_string();
    let headers = [hint, ("x-request-id", id)];
    stage
        .client()
        .exchange("POST", "/v1/completions", &headers, Bytes::from(body))
        .await
        .unwrap()
}

/// A base64-encoded `google.protobuf.Value` holding a list of strings.
fn list_value(addresses: &[SocketAddr]) -> String {
    let mut list = Vec::new();
    for address in addresses {
        let text = address.to_string();
        let string = [&[0x1a, text.len() as u8], text.as_bytes()].concat();
        list.extend([0x0a, string.len() as u8]);
        list.extend(string);
    }
    let value = [&[0x32, list.len() as u8], list.as_slice()].concat();
    base64(&value)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_u32, |group, byte| group << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for n in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * n) & 63) as usize] as char;
            text.push(if n <= chunk.len() { digit } else { '=' });
        }
    }
    text
}
