//! Templates render as Jinja2 renders them, trap by trap (testdata/templates/make.py).

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::sync::Arc;

use lmetric_tokenize::{ChatRequest, ModelTokenizer, Options};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Case {
    name: String,
    template: String,
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    documents: Option<Vec<Value>>,
    #[serde(default)]
    kwargs: Map<String, Value>,
    add_generation_prompt: Option<bool>,
    #[serde(default)]
    continue_final_message: bool,
    rendered: Option<String>,
}

fn model() -> ModelTokenizer {
    let dir = common::testdata("tiny-qwen2");
    let clock = Arc::new(|| jiff::civil::date(2026, 3, 7).at(4, 5, 6, 0));
    ModelTokenizer::load_with(
        &dir,
        Options {
            clock,
            trust_request_chat_template: true,
            ..Options::default()
        },
    )
    .unwrap()
}

#[test]
fn templates_render_as_in_jinja2() {
    let model = model();
    let own = common::testdata("templates/golden.json");
    // another file, made by make.py from other templates, can be checked by hand
    let file = std::env::var_os("LMETRIC_TEMPLATES").map_or(own, Into::into);
    let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    for case in cases {
        let chat = ChatRequest {
            messages: case.messages.into_iter().map(Into::into).collect(),
            tools: case.tools,
            documents: case.documents,
            chat_template: Some(case.template),
            chat_template_kwargs: case.kwargs,
            add_generation_prompt: case.add_generation_prompt.unwrap_or(!case.continue_final_message),
            continue_final_message: case.continue_final_message,
            ..ChatRequest::default()
        };
        let got = model.render_chat(&chat);
        match (&got, &case.rendered) {
            (Ok(got), Some(expected)) if got == expected => {}
            (Err(_), None) => {}
            _ => wrong.push(format!(
                "{}:\n  got      {got:?}\n  expected {:?}",
                case.name, case.rendered
            )),
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}
