//! Ids equal what two versions of vLLM answered, for every captured case.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::PathBuf;

use lmetric_tokenize::{ChatRequest, ModelTokenizer, Tokenized, engine};
use serde_json::Value;

const VERSIONS: [&str; 2] = ["vllm-0.32", "vllm-0.16"];

fn testdata() -> PathBuf {
    common::testdata("")
}

fn model() -> ModelTokenizer {
    ModelTokenizer::load(&testdata().join("tiny-qwen2")).unwrap()
}

/// Request and answer of every case with status 200.
fn cases(file: &str) -> Vec<(Value, Value)> {
    let mut found = Vec::new();
    for version in VERSIONS {
        let text = std::fs::read_to_string(testdata().join(version).join(file)).unwrap();
        let captured: Value = serde_json::from_str(&text).unwrap();
        let cases = captured["cases"].as_array().unwrap().iter();
        let answered = cases.filter(|case| case["status"] == 200);
        found.extend(answered.map(|case| (case["request"].clone(), case["response"].clone())));
    }
    found
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

fn openai(request: &Value) -> ChatRequest {
    ChatRequest::from_openai(&mut request.as_object().unwrap().clone()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[test]
fn plain_prompts_have_the_ids_of_tokenize() {
    let model = model();
    let mut checked = 0;
    for file in [
        "prompts.json",
        "prompts-no-special.json",
        "prompts-token-strs.json",
    ] {
        for (request, answer) in cases(file) {
            let special = request
                .get("add_special_tokens")
                .is_none_or(|special| special == true);
            let expected = engine::read_tokenize(&bytes(&answer)).unwrap();
            assert_eq!(expected.ids, ids(&answer["tokens"]));
            let got = model
                .encode_text(request["prompt"].as_str().unwrap(), special)
                .unwrap();
            assert_eq!(got, expected, "{request}");
            checked += 1;
        }
    }
    assert_eq!(checked, 2 * (15 + 15 + 8));
}

#[test]
fn chats_have_the_ids_of_tokenize() {
    let model = model();
    let cases = cases("chat.json");
    assert_eq!(cases.len(), 28);
    for (request, answer) in cases {
        let got = model.encode_chat(&openai(&request)).unwrap();
        assert_eq!(got.ids, ids(&answer["tokens"]), "{request}");
    }
}

#[test]
fn chats_have_the_ids_of_render() {
    let model = model();
    let cases = cases("render-chat.json");
    assert_eq!(cases.len(), 26);
    for (request, answer) in cases {
        let expected = engine::read_render_chat(&bytes(&answer)).unwrap();
        assert_eq!(
            model.encode_chat(&openai(&request)).unwrap(),
            expected,
            "{request}"
        );
    }
}

#[test]
fn completions_have_the_ids_of_render() {
    let model = model();
    let mut checked = 0;
    for (request, answer) in cases("render-completions.json") {
        let prompts: Vec<Tokenized> = match &request["prompt"] {
            Value::String(text) => vec![model.encode_text(text, true).unwrap()],
            Value::Array(list) if list[0].is_string() => list
                .iter()
                .map(|text| model.encode_text(text.as_str().unwrap(), true).unwrap())
                .collect(),
            given => vec![Tokenized::plain(ids(given))],
        };
        assert_eq!(
            engine::read_render_text(&bytes(&answer), prompts.len()).unwrap(),
            prompts,
            "{request}"
        );
        checked += 1;
    }
    assert_eq!(checked, 6);
}

#[test]
fn anthropic_messages_have_the_ids_of_render() {
    let model = model();
    let cases = cases("render-messages.json");
    assert_eq!(cases.len(), 1, "0.16 has no such endpoint");
    for (request, answer) in cases {
        let chat = ChatRequest::from_anthropic(&mut request.as_object().unwrap().clone()).unwrap();
        let expected = engine::read_render_chat(&bytes(&answer)).unwrap();
        assert_eq!(model.encode_chat(&chat).unwrap(), expected);
    }
    for (request, answer) in self::cases("count-tokens.json") {
        let chat = ChatRequest::from_anthropic(&mut request.as_object().unwrap().clone()).unwrap();
        let expected = answer["input_tokens"].as_u64().unwrap();
        assert_eq!(model.encode_chat(&chat).unwrap().ids.len() as u64, expected);
    }
}

#[test]
fn responses_have_the_length_that_the_engine_counted() {
    // http/responses.*: the engine counted 32 input tokens
    let mut body = serde_json::json!({"model": "tiny-qwen2", "input": "Hello there", "max_output_tokens": 6});
    let chat = ChatRequest::from_responses(body.as_object_mut().unwrap()).unwrap();
    assert_eq!(model().encode_chat(&chat).unwrap().ids.len(), 32);
}

#[test]
fn served_requests_have_the_ids_that_the_engine_reported() {
    let model = model();
    let mut checked = 0;
    for line in std::fs::read_to_string(testdata().join("served.jsonl"))
        .unwrap()
        .lines()
    {
        let served: Value = serde_json::from_str(line).unwrap();
        let request = &served["request"];
        let got = match served["path"].as_str().unwrap() {
            "/v1/chat/completions" => model.encode_chat(&openai(request)).unwrap(),
            "/v1/completions" => model
                .encode_text(request["prompt"].as_str().unwrap(), true)
                .unwrap(),
            other => panic!("unexpected path {other}"),
        };
        assert_eq!(got.ids, ids(&served["prompt_token_ids"]), "{request}");
        checked += 1;
    }
    assert_eq!(checked, 22);
}

#[test]
fn ids_decode_to_the_text_that_detokenize_answers() {
    let model = model();
    for (request, answer) in cases("detokenize.json") {
        assert_eq!(
            model.decode(&ids(&request["tokens"])).unwrap(),
            answer["prompt"].as_str().unwrap()
        );
    }
}

#[test]
fn the_vocabulary_includes_the_added_tokens() {
    assert_eq!(model().vocabulary(), 2048);
}

#[test]
fn a_refused_combination_is_refused_here_too() {
    let text = std::fs::read_to_string(testdata().join("vllm-0.32/errors.json")).unwrap();
    let captured: Value = serde_json::from_str(&text).unwrap();
    let cases = captured["cases"].as_array().unwrap();
    let both = cases
        .iter()
        .find(|case| case["request"].get("continue_final_message").is_some())
        .unwrap();
    assert_eq!(both["status"], 400);
    assert!(ChatRequest::from_openai(&mut both["request"].as_object().unwrap().clone()).is_err());
}

#[test]
fn questions_to_the_engine_have_the_captured_shape() {
    for (request, _) in cases("render-chat.json").into_iter().chain(cases("chat.json")) {
        let chat = openai(&request);
        for query in [
            engine::render_chat("tiny-qwen2", &chat),
            engine::tokenize_chat("tiny-qwen2", &chat),
        ] {
            let body: Value = serde_json::from_slice(&query.body).unwrap();
            let fields = request
                .as_object()
                .unwrap()
                .iter()
                .filter(|(name, _)| *name != "max_tokens");
            for (name, value) in fields {
                assert_eq!(&body[name], value, "{name} of {}", query.path);
            }
            assert_eq!(openai(&body), chat, "asking again is asking the same");
        }
    }
}
