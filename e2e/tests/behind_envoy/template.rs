//! A picker whose chat template is not the engines'.

use std::{path::Path, time::Duration};

use lmetric_testkit::{Plug, Stage, chat, eventually};
use serde_json::Value;

use crate::support::{decision, post_as, quick, tokenizer};

/// The engines' tokenizer with another template.
fn mismatched(folder: &Path) {
    std::fs::copy(tokenizer().join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    let text = std::fs::read_to_string(tokenizer().join("tokenizer_config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["chat_template"] =
        "{% for message in messages %}### {{ message.role }}: {{ message.content }}\n{% endfor %}".into();
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_wrong_template_is_found_out_and_the_engine_renders_instead() {
    let folder = tempfile::tempdir().unwrap();
    mismatched(folder.path());
    let mut options = quick(Plug::Light);
    options.picker.models[0].1 = folder.path().to_path_buf();
    let stage = Stage::start(options).await.unwrap();
    let ask = async |n: u32| {
        let text = format!("Question {n}: what is the answer to it, and why? ").repeat(10);
        let id = format!("ask-{n}");
        let body = chat(stage.model(), &text, 2, false);
        let answer = post_as(&stage, &id, "/v1/chat/completions", &body).await.unwrap();
        assert!(answer.status.is_success(), "{}", answer.text());
        let counted = decision(&stage, &id).await.unwrap()["tokens"].clone();
        (counted, answer.json().unwrap()["usage"]["prompt_tokens"].clone())
    };
    let (counted, real) = ask(0).await;
    assert_ne!(counted, real, "the test's template must differ");
    for n in 1..120 {
        ask(n).await;
    }
    let read =
        || async { Ok(stage.admin().json("/debug/endpoints").await?["endpoints"][0]["tokens"].clone()) };
    let limit = Duration::from_secs(5);
    eventually("the tokenizer to be mistrusted", limit, read, |tokens| {
        tokens["mistrusted"] == true && tokens["rung"] == "engine"
    })
    .await
    .unwrap();
    let (counted, real) = ask(1_000).await;
    assert_eq!(counted, real, "the engine's own rendering counts");
}
