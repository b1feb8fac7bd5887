//! Bad files, hostile templates, strange answers.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use lmetric_tokenize::engine::{read_render_chat, read_render_text, read_tokenize};
use lmetric_tokenize::{
    ChatRequest, EncodeError, Media, ModelTokenizer, Options, estimate_chat, estimate_text,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn shipped() -> std::path::PathBuf {
    common::testdata("tiny-qwen2")
}

fn chat(template: &str) -> ChatRequest {
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}], "chat_template": template});
    ChatRequest::from_openai(body.as_object_mut().unwrap()).unwrap()
}

fn trusting(dir: &Path) -> ModelTokenizer {
    let options = Options {
        trust_request_chat_template: true,
        ..Options::default()
    };
    ModelTokenizer::load_with(dir, options).unwrap()
}

#[test]
fn a_template_of_the_request_is_not_run_unless_trusted() {
    let model = ModelTokenizer::load(&shipped()).unwrap();
    assert!(matches!(
        model.encode_chat(&chat("x")),
        Err(EncodeError::UntrustedTemplate)
    ));
    assert!(trusting(&shipped()).encode_chat(&chat("x")).is_ok());
}

#[test]
fn a_hostile_template_ends_soon_and_small() {
    let model = trusting(&shipped());
    let nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
    let doubling = "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}";
    let lists = "{% set n = namespace(x=[1, 2]) %}{% for i in range(60) %}{% set n.x = n.x * 2 %}{% endfor %}{{ n.x | length }}";
    let shared = "{% set n = namespace(x=[1, 2]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}";
    let output = "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}";
    let recursion = "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    let dump = "{% for i in range(99999) %}{{ range(9999) | list | tojson }}{% endfor %}";
    let replace = "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x.replace('a', 'aaaa') %}{% endfor %}{{ n.x }}";
    let joined = "{{ range(99999) | join('x' * 100000) }}";
    let huge = "a".repeat(300 << 10);
    let deep = format!(
        "{}1{}",
        "{{ ".to_owned() + &"(".repeat(5000),
        ")".repeat(5000) + " }}"
    );
    for template in [
        nested, doubling, lists, shared, output, recursion, dump, replace, joined, &huge, &deep,
    ] {
        let started = Instant::now();
        let got = model.encode_chat(&chat(template));
        let took = started.elapsed();
        assert!(
            matches!(got, Err(EncodeError::Template(_))),
            "{}",
            &template[..template.len().min(60)]
        );
        assert!(
            took < Duration::from_secs(2),
            "{took:?} for {}",
            &template[..template.len().min(60)]
        );
    }
}

#[test]
fn template_errors_quote_the_line_but_no_prompt() {
    let model = trusting(&shipped());
    let error = model
        .encode_chat(&chat("a\n{{ messages[0].content.nope() }}"))
        .unwrap_err();
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.contains("nope") && !text.contains("hello"), "{text}");
    }
    assert!(error.to_string().contains("line 2"));
}

/// A copy of the shipped folder with one file replaced, or removed.
fn folder(file: &str, content: Option<&str>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(shipped().join(name), dir.path().join(name)).unwrap();
    }
    match content {
        Some(content) => std::fs::write(dir.path().join(file), content).unwrap(),
        None => std::fs::remove_file(dir.path().join(file)).unwrap(),
    }
    dir
}

#[test]
fn a_bad_folder_is_refused_in_one_line_with_file_field_and_remedy() {
    let bad_model = r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x"]}}"#;
    for (file, content, field) in [
        ("tokenizer.json", None, "file"),
        ("tokenizer.json", Some("{"), "file"),
        ("tokenizer.json", Some("[]"), "file"),
        ("tokenizer.json", Some("{}"), "file"),
        ("tokenizer.json", Some(bad_model), "file"),
        ("tokenizer_config.json", None, "file"),
        ("tokenizer_config.json", Some("nonsense"), "file"),
        (
            "tokenizer_config.json",
            Some(r#"{"chat_template": 5}"#),
            "chat_template",
        ),
        (
            "tokenizer_config.json",
            Some(r#"{"chat_template": [{"name": "x"}]}"#),
            "chat_template",
        ),
        (
            "tokenizer_config.json",
            Some(r#"{"chat_template": "{% for %}"}"#),
            "chat_template (default)",
        ),
        ("chat_template.jinja", Some("{{ unclosed"), "file (default)"),
        ("chat_template.json", Some("{}"), "chat_template"),
    ] {
        let dir = folder(file, content);
        let error = ModelTokenizer::load(dir.path()).err().expect("refused");
        let text = error.to_string();
        assert_eq!(error.file, dir.path().join(file), "{text}");
        assert_eq!(error.field, field, "{text}");
        assert!(
            text.starts_with(&format!("{}: {field}: ", error.file.display())) && text.contains("; "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!error.remedy.is_empty());
    }
}

#[test]
fn a_model_without_template_still_tokenizes_text() {
    let dir = folder("tokenizer_config.json", Some("{}"));
    let model = ModelTokenizer::load(dir.path()).unwrap();
    assert!(!model.has_chat_template());
    assert!(model.encode_text("hello", true).is_ok());
    let plain = ChatRequest {
        chat_template: None,
        ..chat("")
    };
    assert!(matches!(model.encode_chat(&plain), Err(EncodeError::NoTemplate)));
}

#[test]
fn the_right_one_of_several_templates_is_used() {
    let render = |dir: &tempfile::TempDir, tools: bool, name: Option<&str>| {
        let mut chat = ChatRequest {
            chat_template: name.map(str::to_owned),
            ..chat("")
        };
        chat.tools = tools.then(Vec::new);
        trusting(dir.path()).render_chat(&chat).unwrap()
    };
    let named = json!({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]});
    let dir = folder("tokenizer_config.json", Some(&named.to_string()));
    assert_eq!([render(&dir, false, None), render(&dir, true, None)], ["D", "T"]);
    assert_eq!(render(&dir, false, Some("rag")), "R");
    std::fs::write(dir.path().join("chat_template.json"), r#"{"chat_template": "P"}"#).unwrap();
    assert_eq!([render(&dir, false, None), render(&dir, true, None)], ["P", "T"]);
    std::fs::write(dir.path().join("chat_template.jinja"), "J").unwrap();
    assert_eq!([render(&dir, false, None), render(&dir, true, None)], ["P", "J"]);
}

#[test]
fn tokens_that_only_the_configuration_names_are_added() {
    let config = json!({"added_tokens_decoder": {"2048": {"content": "<|vision|>", "special": true}}});
    let dir = folder("tokenizer_config.json", Some(&config.to_string()));
    let model = ModelTokenizer::load(dir.path()).unwrap();
    assert_eq!(model.encode_text("a<|vision|>", false).unwrap().ids, [64, 2048]);
    assert_eq!(model.vocabulary(), 2049);
}

#[test]
fn special_tokens_go_around_a_text_only_when_asked_for() {
    let mut tokenizer: Value =
        serde_json::from_str(&std::fs::read_to_string(shipped().join("tokenizer.json")).unwrap()).unwrap();
    tokenizer["post_processor"] = json!({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [2042], "tokens": ["<|im_start|>"]}, "<|im_end|>": {"id": "<|im_end|>", "ids": [2043], "tokens": ["<|im_end|>"]}}});
    tokenizer["truncation"] =
        json!({"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0});
    let dir = folder("tokenizer.json", Some(&tokenizer.to_string()));
    let model = ModelTokenizer::load(dir.path()).unwrap();
    let plain = model.encode_text("Hello, world!", false).unwrap().ids;
    assert_eq!(
        plain,
        [39, 558, 366, 11, 308, 267, 1663, 0],
        "the file's truncation is off, as in the engine"
    );
    let special = model.encode_text("Hello, world!", true).unwrap().ids;
    assert_eq!(special, [&[2042], &plain[..], &[2043]].concat());
}

#[test]
fn many_threads_get_the_ids_of_one() {
    let model = ModelTokenizer::load(&shipped()).unwrap();
    let texts: Vec<String> = (0..64)
        .map(|at| format!("turn {at} <|im_end|>{}", "word ".repeat(at * 7)))
        .collect();
    let expected: Vec<_> = texts
        .iter()
        .map(|text| model.encode_text(text, false).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    for (text, expected) in texts.iter().zip(&expected) {
                        assert_eq!(&model.encode_text(text, false).unwrap(), expected);
                    }
                }
            });
        }
    });
}

#[test]
fn media_in_an_answer_have_place_and_identity() {
    let answer = json!({"token_ids": [1, 2, 3, 4, 5, 6], "features": {
        "mm_hashes": {"image": ["h1", "h2"]},
        "mm_placeholders": {"image": [{"offset": 1, "length": 2}, {"offset": 4, "length": 1}]}, "kwargs_data": null}});
    let got = read_render_chat(answer.to_string().as_bytes()).unwrap();
    assert_eq!(got.matchable, 6, "the engine told identity and length");
    assert_eq!(
        got.media[1],
        Media {
            offset: 4,
            length: 1,
            hash: Some("h2".to_owned())
        }
    );
    let nameless = json!({"token_ids": [1, 2, 3], "features": {"mm_hashes": {}, "mm_placeholders": {"image": [{"offset": 1, "length": 2}]}}});
    assert_eq!(
        read_render_chat(nameless.to_string().as_bytes())
            .unwrap()
            .matchable,
        1
    );
}

#[test]
fn strange_answers_are_errors() {
    let beyond = json!({"token_ids": [1], "features": {"mm_placeholders": {"image": [{"offset": u64::MAX, "length": 2}]}}});
    for answer in [
        "",
        "{}",
        "[]",
        "null",
        "[[], []]",
        r#"{"token_ids": [-1]}"#,
        r#"{"detail": "Not Found"}"#,
        &beyond.to_string(),
    ] {
        assert!(read_render_chat(answer.as_bytes()).is_err(), "{answer}");
        assert!(read_tokenize(answer.as_bytes()).is_err(), "{answer}");
    }
    assert!(read_render_text(b"[]", 1).is_err());
    assert!(read_render_text(br#"[{"token_ids": [1]}, {"token_ids": [2]}]"#, 1).is_err());
}

proptest! {
    #[test]
    fn the_estimate_is_a_token_for_four_bytes_and_keeps_prefixes(a in ".{0,200}", b in ".{0,200}") {
        let (short, long) = (estimate_text(&a), estimate_text(&(a.clone() + &b)));
        prop_assert_eq!(short.ids.len(), a.len().div_ceil(4));
        let whole = a.len() / 4;
        prop_assert_eq!(&short.ids[..whole], &long.ids[..whole]);
    }

    #[test]
    fn the_estimate_of_a_later_turn_begins_like_the_earlier_one(turns in prop::collection::vec(".{0,60}", 1..8)) {
        let messages: Vec<Value> = turns.iter().map(|turn| json!({"role": "user", "content": turn})).collect();
        let of = |count: usize| estimate_chat(&ChatRequest { messages: messages[..count].iter().cloned().map(Into::into).collect(), ..ChatRequest::default() });
        let (all, some) = (of(turns.len()), of(turns.len() / 2));
        let whole = some.ids.len().saturating_sub(1);
        prop_assert_eq!(&some.ids[..whole], &all.ids[..whole]);
    }
}

#[test]
fn the_estimate_counts_images_as_placeholders_not_as_bytes() {
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(100_000))}});
    let messages =
        vec![json!({"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]})];
    let got = estimate_chat(&ChatRequest {
        messages: messages.into_iter().map(Into::into).collect(),
        ..ChatRequest::default()
    });
    assert!(got.ids.len() < 20);
    assert_eq!(got.media.len(), 1);
    assert!(got.matchable <= got.ids.len());
    assert_eq!(got.prompt_tokens(1024), got.ids.len() + 1024);
}
