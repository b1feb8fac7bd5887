//! A chat's body is read without a tree of its messages; what comes out is what the tree would give.

use lmetric_tokenize::{ChatBody, ChatError, ChatRequest, Message};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

type Read = Result<(Result<ChatRequest, ChatError>, Map<String, Value>), String>;

fn apart(body: &str) -> Read {
    let mut body: ChatBody = serde_json::from_str(body).map_err(|error| error.to_string())?;
    Ok((ChatRequest::from_openai_body(&mut body), body.fields))
}

fn tree(body: &str) -> Read {
    let mut body: Map<String, Value> = serde_json::from_str(body).map_err(|error| error.to_string())?;
    Ok((ChatRequest::from_openai(&mut body), body))
}

#[test]
fn odd_bodies_are_read_as_from_a_tree() {
    for body in [
        r#"{"messages": [{"role": "user", "content": "line\n\"quoted\" \u00e4\ud83d\ude00 €"}], "stream": true}"#,
        r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}], "content": "b"}]}"#,
        r#"{"messages": [{"role": "user", "content": "b", "content": [{"type": "text", "text": "a"}]}]}"#,
        r#"{"messages": [{"role": "user", "content": "b", "content": null}]}"#,
        r#"{"messages": [{"role": "user", "role": 3, "content": "b"}]}"#,
        r#"{"messages": [{"role": 3, "role": "user", "content": "b"}]}"#,
        r#"{"messages": [{"r\u006fle": "user", "c\u006fntent": "b"}]}"#,
        r#"{"messages": [{"role": "user", "content": 1.5, "n": -3, "m": 1e300, "k": 18446744073709551615}]}"#,
        r#"{"messages": [{"role": "user", "content": {"a": [true, null]}}]}"#,
        r#"{"messages": [{"role": "user"}, "text", 3, -3, 0.5, true, null, [], {}]}"#,
        r#"{"messages": ["text"]}"#,
        r#"{"messages": []}"#,
        r#"{"messages": null}"#,
        r#"{"messages": "text"}"#,
        r#"{"messages": 3}"#,
        r#"{"messages": {"role": "user"}}"#,
        r#"{"messages": [], "messages": [{"role": "user", "content": "the last counts"}]}"#,
        r#"{"messages": [{"role": "user", "content": "a"}], "messages": null}"#,
        r#"{"m\u0065ssages": [{"role": "user", "content": "a"}]}"#,
        r#"{"model": "m", "model": "n", "tools": [], "chat_template_kwargs": {"a": 1}}"#,
        r#"{"messages": {"a": "\ud800"}}"#,
        r#"{"messages": [{"role": "user", "content": "\ud800"}]}"#,
        r#"{"messages": [{"role": "user", "content": "a"}]"#,
        r#"{"messages": [{"role": "user", "content": "a"}]} x"#,
        r#"{"messages": [1e999]}"#,
        "[]",
        r#""text""#,
        "null",
        "",
    ] {
        assert_eq!(apart(body), tree(body), "{body}");
    }
    let deep = format!(
        r#"{{"messages": [{{"role": "user", "content": {}1{}}}]}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    assert!(apart(&deep).is_err() && tree(&deep).is_err());
}

#[test]
fn a_message_becomes_the_json_that_it_was() {
    for message in [
        json!({"role": "user", "content": "text", "name": "n"}),
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}),
        json!({"role": 3, "content": [{"type": "text"}]}),
        json!({}),
    ] {
        assert_eq!(Value::from(Message::from(message.clone())), message);
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..3)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// An object as text, with names that may come twice.
fn object(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    let entry = (
        prop::sample::select(names),
        value(),
        any::<String>(),
        any::<bool>(),
    );
    prop::collection::vec(entry, 0..5).prop_map(|entries| {
        let entries = entries.into_iter().map(|(name, value, text, is_text)| {
            let value = if is_text { Value::from(text) } else { value };
            format!("{}: {value}", Value::from(name))
        });
        format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
    })
}

proptest! {
    #[test]
    fn every_body_is_read_as_from_a_tree(
        messages in prop::collection::vec(object(&["role", "content", "name", "tool_calls"]), 0..4),
        others in object(&["model", "tools", "add_generation_prompt", "chat_template_kwargs", "reasoning_effort"]),
        odd in value(), is_odd in any::<bool>(),
    ) {
        let messages = if is_odd { odd.to_string() } else { format!("[{}]", messages.join(", ")) };
        let comma = if others == "{}" { "" } else { ", " };
        let body = format!("{{\"messages\": {messages}{comma}{}", &others[1..]);
        let (got, expected) = (apart(&body), tree(&body));
        prop_assert!(got.is_ok());
        prop_assert_eq!(got, expected);
    }
}
