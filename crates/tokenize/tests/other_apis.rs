//! Anthropic messages and Responses become the chats that vLLM makes of them.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "bodies are written where they are used"
)]

mod common;

use lmetric_tokenize::{ChatError, ChatRequest, ModelTokenizer};
use serde_json::{Value, json};

fn anthropic(body: Value) -> ChatRequest {
    ChatRequest::from_anthropic(&mut body.as_object().unwrap().clone()).unwrap()
}

fn responses(body: Value) -> Result<ChatRequest, ChatError> {
    ChatRequest::from_responses(&mut body.as_object().unwrap().clone())
}

fn render(mut chat: ChatRequest, template: &str) -> String {
    let dir = common::testdata("tiny-qwen2");
    let options = lmetric_tokenize::Options {
        chat_template: Some(template.to_owned()),
        ..Default::default()
    };
    chat.chat_template = None;
    ModelTokenizer::load_with(&dir, options)
        .unwrap()
        .render_chat(&chat)
        .unwrap()
}

#[test]
fn anthropic_tool_use_and_results_become_calls_and_tool_messages() {
    let chat = anthropic(json!({
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1"}, {"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "ok"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": "one"}, {"type": "text", "text": "two"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}]},
            {"type": "text", "text": "go on"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": "r"}]},
    ]}));
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "reasoning": "hm", "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}], "content": "ok"},
        {"role": "tool", "tool_call_id": "t1", "content": "one\ntwo"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}]},
        {"role": "user", "content": "go on"},
        {"role": "tool", "tool_call_id": "t2", "content": "r"},
    ]);
    assert_eq!(Value::from(chat.messages.clone()), expected);
    assert_eq!(chat.images(), 1);
    assert!(chat.add_generation_prompt && !chat.add_special_tokens);
}

#[test]
fn anthropic_tools_are_renamed_and_their_schema_is_an_object() {
    let chat = anthropic(json!({"messages": [], "tools": [
        {"name": "f", "input_schema": {"properties": {}}, "cache_control": {"type": "ephemeral"}}]}));
    let expected = json!([{"type": "function", "function":
        {"name": "f", "description": null, "parameters": {"properties": {}, "type": "object"}}}]);
    assert_eq!(Value::from(chat.tools.unwrap()), expected);
}

#[test]
fn anthropic_inline_system_messages_move_only_if_the_template_refuses_them() {
    let body = json!({"system": "A.", "messages": [
        {"role": "user", "content": "u"}, {"role": "system", "content": [{"type": "text", "text": "B."}]}, {"role": "user", "content": "v"}]});
    let open = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    assert_eq!(
        render(anthropic(body.clone()), open),
        "[system:A.][user:u][system:B.][user:v]"
    );
    let strict = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system first') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    assert_eq!(render(anthropic(body), strict), "[system:A.B.][user:u][user:v]");
}

#[test]
fn thinking_disabled_is_the_lowest_effort_that_the_template_tells_apart() {
    let body = json!({"messages": [{"role": "user", "content": "u"}], "thinking": {"type": "disabled"}, "output_config": {"effort": "high"}});
    let tells = "{{ reasoning_effort }}{{ enable_thinking }}";
    assert_eq!(render(anthropic(body.clone()), tells), "noneFalse");
    let ignores = "{{ 'low' if reasoning_effort == 'low' else 'max' }}{{ reasoning_effort | length if messages | length > 9 }}";
    assert_eq!(render(anthropic(body.clone()), ignores), "low");
    let refuses =
        "{% if reasoning_effort == 'none' %}{{ raise_exception('no') }}{% endif %}{{ reasoning_effort }}";
    assert_eq!(render(anthropic(body), refuses), "low");
    let effort = json!({"messages": [], "output_config": {"effort": "high"}});
    assert_eq!(render(anthropic(effort), tells), "highTrue");
}

#[test]
fn response_items_of_one_assistant_turn_are_one_message() {
    let chat = responses(json!({
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": "a"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": [{"type": "reasoning_text", "text": "r"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}], "status": "completed"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
            {"type": "function_call", "call_id": "c2", "name": "g", "namespace": "n", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}, {"type": "web_search"},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g", "parameters": null}]}],
        "reasoning": {"effort": "low"},
    }))
    .unwrap();
    let expected = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "reasoning": "r", "content": "ok", "tool_calls": [
            {"id": "c1", "function": {"arguments": "{\"x\": 1}", "name": "f"}, "type": "function"},
            {"id": "c2", "function": {"arguments": "{}", "name": "n__g"}, "type": "function"}]},
        {"role": "tool", "content": "1", "tool_call_id": "c1"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"}]},
    ]);
    assert_eq!(Value::from(chat.messages), expected);
    assert_eq!(
        Value::from(chat.tools.unwrap()),
        json!([
            {"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object"}, "strict": true}},
            {"type": "function", "function": {"name": "n__g", "description": null, "parameters": null}},
        ])
    );
    assert_eq!(chat.chat_template_kwargs["reasoning_effort"], "low");
    assert!(chat.add_special_tokens, "this endpoint adds them, unlike chat");
}

#[test]
fn an_unfinished_response_item_is_continued() {
    let input = json!([{"role": "user", "content": "a"}, {"type": "message", "role": "assistant", "status": "incomplete", "content": [{"type": "output_text", "text": "So f"}]}]);
    let chat = responses(json!({"input": input})).unwrap();
    assert!(chat.continue_final_message && !chat.add_generation_prompt);
}

#[test]
fn what_only_the_engine_knows_is_no_mistake_of_the_client() {
    for body in [
        json!({"input": "a", "previous_response_id": "resp_1"}),
        json!({"input": "a", "tools": [{"type": "custom", "name": "x"}]}),
        json!({"input": [{"type": "item_reference", "id": "x"}]}),
    ] {
        assert!(matches!(responses(body), Err(ChatError::EngineOnly(_))));
    }
    assert_eq!(responses(json!({})), Err(ChatError::Missing("input")));
    let changed = json!({"messages": [{"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}]}]});
    let got = ChatRequest::from_anthropic(&mut changed.as_object().unwrap().clone());
    assert!(matches!(got, Err(ChatError::EngineOnly(_))));
}
