//! What vLLM's message parsing does before the template, seen through a template that dumps it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "bodies are written where they are used"
)]

mod common;

use lmetric_tokenize::{ChatError, ChatRequest, EncodeError, ModelTokenizer, Options};
use serde_json::{Value, json};

const STRINGS: &str = "{{ messages | tojson }}";
const PARTS: &str =
    "{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}{{ messages | tojson }}";

fn model() -> ModelTokenizer {
    model_with(Options {
        trust_request_chat_template: true,
        ..Options::default()
    })
}

fn model_with(options: Options) -> ModelTokenizer {
    ModelTokenizer::load_with(&common::testdata("tiny-qwen2"), options).unwrap()
}

fn openai(body: Value) -> ChatRequest {
    ChatRequest::from_openai(&mut body.as_object().unwrap().clone()).unwrap()
}

fn rendered(template: &str, mut chat: ChatRequest) -> String {
    chat.chat_template = Some(template.to_owned());
    model().render_chat(&chat).unwrap()
}

/// The messages that a template sees.
fn seen(template: &str, messages: Value) -> String {
    rendered(template, openai(json!({"messages": messages})))
}

#[test]
fn text_parts_are_joined_by_newlines_and_empty_ones_left_out() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": ""}, "b", {"type": "text"}]);
    assert_eq!(
        seen(STRINGS, json!([{"role": "user", "content": parts}])),
        r#"[{"role": "user", "content": "a\nb"}]"#
    );
    assert_eq!(
        seen(PARTS, json!([{"role": "user", "content": parts}])),
        r#"[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]}]"#
    );
}

#[test]
fn a_string_becomes_one_part_and_no_content_none() {
    assert_eq!(
        seen(
            PARTS,
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": null}])
        ),
        r#"[{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": []}]"#
    );
    assert_eq!(
        seen(
            STRINGS,
            json!([{"role": "user", "content": "a"}, {"role": "assistant"}])
        ),
        r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]"#
    );
}

#[test]
fn unknown_fields_of_a_part_reach_the_template() {
    let parts = json!([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]);
    assert_eq!(
        seen(PARTS, json!([{"role": "user", "content": parts}])),
        r#"[{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]"#
    );
}

#[test]
fn other_kinds_of_text_count_as_text() {
    let parts = json!([{"type": "thinking", "thinking": "t"}, {"type": "refusal", "refusal": "r"},
        {"type": "input_text", "text": "i"}, {"type": "output_text", "text": "o"}]);
    assert_eq!(
        seen(STRINGS, json!([{"role": "assistant", "content": parts}])),
        r#"[{"role": "assistant", "content": "t\nr\ni\no"}]"#
    );
}

#[test]
fn tool_arguments_are_parsed_and_known_fields_come_first() {
    let call = json!({"type": "function", "id": "c", "index": 0,
        "function": {"name": "f", "extra": 1, "arguments": "{\"b\": 1.50, \"a\": \"é\"}"}});
    assert_eq!(
        seen(
            STRINGS,
            json!([{"role": "assistant", "content": null, "tool_calls": [call]}])
        ),
        concat!(
            r#"[{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": "#,
            r#"{"arguments": {"b": 1.5, "a": "é"}, "name": "f", "extra": 1}, "type": "function", "index": 0}]}]"#
        )
    );
}

#[test]
fn arguments_that_are_no_object_become_an_empty_one() {
    for arguments in [
        json!("not json"),
        json!("[1]"),
        json!(""),
        json!(null),
        json!("42"),
    ] {
        let call = json!({"id": "c", "function": {"arguments": arguments, "name": "f"}, "type": "function"});
        assert!(
            seen(STRINGS, json!([{"role": "assistant", "tool_calls": [call]}]))
                .contains(r#""function": {"arguments": {}, "name": "f"}"#)
        );
    }
    let call = json!({"id": "c", "function": {"name": "f"}, "type": "function"});
    assert!(
        seen(STRINGS, json!([{"role": "assistant", "tool_calls": [call]}]))
            .contains(r#""function": {"name": "f", "arguments": {}}"#)
    );
}

#[test]
fn an_empty_list_of_calls_is_dropped() {
    assert_eq!(
        seen(
            STRINGS,
            json!([{"role": "assistant", "content": "a", "tool_calls": []}])
        ),
        r#"[{"role": "assistant", "content": "a"}]"#
    );
}

#[test]
fn reasoning_has_two_names_and_comes_from_either() {
    let expected = r#"[{"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "r"}]"#;
    for name in ["reasoning", "reasoning_content"] {
        assert_eq!(
            seen(STRINGS, json!([{"role": "assistant", "content": "a", name: "r"}])),
            expected
        );
    }
    assert_eq!(
        seen(
            STRINGS,
            json!([{"role": "user", "content": "a", "reasoning": "r"}])
        ),
        r#"[{"role": "user", "content": "a"}]"#
    );
}

#[test]
fn only_known_fields_of_a_message_reach_the_template() {
    assert_eq!(
        seen(
            STRINGS,
            json!([{"role": "user", "content": "a", "name": "bob", "weight": 1, "id": "x"}])
        ),
        r#"[{"role": "user", "content": "a", "name": "bob"}]"#
    );
}

#[test]
fn tool_answers_made_of_text_are_one_string_in_either_format() {
    let message = json!([{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
    let expected = r#"[{"role": "tool", "content": "a\nb", "tool_call_id": "c"}]"#;
    assert_eq!(seen(STRINGS, message.clone()), expected);
    assert_eq!(seen(PARTS, message), expected);
    let reference =
        json!([{"role": "tool", "tool_call_id": "c", "content": [{"type": "tool_reference", "name": "f"}]}]);
    assert_eq!(
        seen(PARTS, reference),
        r#"[{"role": "tool", "content": [{"type": "tool_reference", "name": "f"}], "tool_call_id": "c"}]"#
    );
}

#[test]
fn the_attribution_line_of_a_system_prompt_is_dropped() {
    let header = "x-anthropic-billing-header: cch=123;";
    assert_eq!(
        seen(
            STRINGS,
            json!([{"role": "system", "content": format!("{header}\nBe brief.")}])
        ),
        r#"[{"role": "system", "content": "Be brief."}]"#
    );
    assert_eq!(
        seen(
            STRINGS,
            json!([{"role": "system", "content": [{"type": "text", "text": header}, {"type": "text", "text": "Be."}]}])
        ),
        r#"[{"role": "system", "content": "Be."}]"#
    );
    assert!(seen(STRINGS, json!([{"role": "user", "content": header}])).contains("cch"));
}

#[test]
fn developer_messages_become_one_system_prompt_unless_the_template_knows_them() {
    let messages = json!([{"role": "system", "content": "a"}, {"role": "user", "content": "u"}, {"role": "developer", "content": "b"}]);
    assert_eq!(
        seen(STRINGS, messages.clone()),
        r#"[{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "u"}]"#
    );
    let knowing = format!("{{% if 'developer' == 'x' %}}{{% endif %}}{STRINGS}");
    assert!(seen(&knowing, messages).contains(r#"{"role": "developer", "content": "b", "tools": null}"#));
}

#[test]
fn a_tool_is_shown_with_the_fields_that_the_engine_knows() {
    let tools = json!([{"function": {"parameters": {"z": 1, "a": 2}, "name": "f", "strict": null, "foo": 1}, "type": "function", "bar": 2},
        {"type": "function", "function": {"name": "g", "description": "d", "strict": true}}]);
    assert_eq!(
        rendered(
            "{{ tools | tojson }}",
            openai(json!({"messages": [], "tools": tools}))
        ),
        concat!(
            r#"[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"z": 1, "a": 2}}}, "#,
            r#"{"type": "function", "function": {"name": "g", "description": "d", "parameters": null, "strict": true}}]"#
        )
    );
}

#[test]
fn a_wish_for_reasoning_reaches_the_template_twice() {
    let template = "{{ reasoning_effort }} {{ enable_thinking }}";
    let chat = |body| rendered(template, openai(body));
    assert_eq!(
        chat(json!({"messages": [], "reasoning_effort": "high"})),
        "high True"
    );
    assert_eq!(
        chat(json!({"messages": [], "reasoning_effort": "none"})),
        "none False"
    );
    assert_eq!(chat(json!({"messages": [], "reasoning_effort": null})), " ");
    let kwargs = json!({"enable_thinking": false, "reasoning_effort": "low"});
    assert_eq!(
        chat(json!({"messages": [], "reasoning_effort": "high", "chat_template_kwargs": kwargs})),
        "high False"
    );
}

#[test]
fn the_engines_default_kwargs_lose_against_the_requests() {
    let defaults = json!({"enable_thinking": false, "style": "x"})
        .as_object()
        .unwrap()
        .clone();
    let model = model_with(Options {
        chat_template: Some("{{ enable_thinking }}{{ style }}".to_owned()),
        chat_template_kwargs: defaults,
        ..Options::default()
    });
    assert_eq!(
        model.render_chat(&openai(json!({"messages": []}))).unwrap(),
        "Falsex"
    );
    let chat = openai(json!({"messages": [], "chat_template_kwargs": {"enable_thinking": true}}));
    assert_eq!(model.render_chat(&chat).unwrap(), "Truex");
}

#[test]
fn the_generation_prompt_field_wins_over_a_kwarg() {
    let chat = openai(json!({"messages": [], "chat_template_kwargs": {"add_generation_prompt": false}}));
    assert_eq!(rendered("{{ add_generation_prompt }}", chat), "True");
}

#[test]
fn with_an_image_the_match_stops_where_a_parts_template_puts_it() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}{% if c.type == 'image' %}<|vision|>{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}";
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let mut chat = openai(json!({"messages": [
        {"role": "system", "content": "You look at pictures."},
        {"role": "user", "content": [{"type": "text", "text": "This one:"}, image, {"type": "text", "text": "and"}, image]}]}));
    chat.chat_template = Some(template.to_owned());
    assert_eq!(chat.images(), 2);
    let model = model();
    let got = model.encode_chat(&chat).unwrap();
    let text = model.render_chat(&chat).unwrap();
    let before = &text[..text.find("<|vision|>").unwrap()];
    let expected = model.encode_text(before, false).unwrap().ids;
    assert_eq!(got.matchable, expected.len());
    assert_eq!(got.ids[..got.matchable], expected);
    assert_eq!(got.media.len(), 2);
    assert_eq!(got.prompt_tokens(1024), got.ids.len() + 2048);
}

#[test]
fn with_an_image_the_match_stops_before_the_text_of_a_strings_template() {
    let image = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
    let chat = openai(json!({"messages": [
        {"role": "system", "content": "You look at pictures."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}]}));
    let model = model();
    let got = model.encode_chat(&chat).unwrap();
    let prefix = "<|im_start|>system\nYou look at pictures.<|im_end|>\n<|im_start|>user\n";
    assert_eq!(
        got.ids[..got.matchable],
        model.encode_text(prefix, false).unwrap().ids
    );
}

#[test]
fn bad_chats_are_refused_by_name() {
    let refused = |body: Value| ChatRequest::from_openai(&mut body.as_object().unwrap().clone()).unwrap_err();
    assert_eq!(refused(json!({})), ChatError::Missing("messages"));
    for (body, field) in [
        (json!({"messages": "x"}), "messages"),
        (json!({"messages": [{"content": "x"}]}), "messages[0]"),
        (json!({"messages": [1]}), "messages[0]"),
        (json!({"messages": [], "tools": {}}), "tools"),
        (
            json!({"messages": [], "chat_template_kwargs": []}),
            "chat_template_kwargs",
        ),
        (
            json!({"messages": [], "add_generation_prompt": 1}),
            "add_generation_prompt",
        ),
    ] {
        assert!(matches!(refused(body), ChatError::Type { field: got, .. } if got == field));
    }
    for messages in [
        json!([{"role": "user", "content": 1}]),
        json!([{"role": "user", "content": [{"type": "nonsense"}]}]),
        json!([{"role": "user", "content": [{"type": 1}]}]),
        json!([{"role": "assistant", "tool_calls": "x"}]),
        json!([{"role": "assistant", "tool_calls": [{"type": "custom"}]}]),
    ] {
        let got = model().encode_chat(&openai(json!({"messages": messages})));
        assert!(matches!(got, Err(EncodeError::Conversation(_))), "{messages}");
    }
    let got = model().encode_chat(&openai(json!({"messages": [], "tools": [{"type": "function"}]})));
    assert!(matches!(got, Err(EncodeError::Tool(0))));
}
