use rstest::rstest;
use serde_json::json;

use super::*;
use crate::testing::captured_request;

fn post(path: &str, body: impl Into<Bytes>) -> Result<ParsedRequest, Refusal> {
    read(Asked {
        head: Head {
            method: Some("POST".to_owned()),
            path: path.to_owned(),
            ..Head::default()
        },
        subset: None,
        body: body.into(),
    })
}

fn post_json(path: &str, body: &Value) -> ParsedRequest {
    post(path, body.to_string()).unwrap()
}

fn tokens(ids: &[u32]) -> PromptInput {
    PromptInput::Tokens(Tokenized::plain(ids.to_vec()))
}

fn text(text: &str) -> PromptInput {
    PromptInput::Text {
        text: text.to_owned(),
        add_special_tokens: true,
    }
}

#[rstest]
#[case("/v1/chat/completions", RequestKind::Chat)]
#[case("/tenant/a/v1/chat/completions/", RequestKind::Chat)]
#[case("/v1/completions", RequestKind::Completions)]
#[case("/v1/responses", RequestKind::Responses)]
#[case("/v1/responses/resp_1/cancel", RequestKind::Other)]
#[case("/v1/embeddings", RequestKind::Embeddings)]
#[case("/v1/messages", RequestKind::Messages)]
#[case("/v1/messages/count_tokens", RequestKind::Other)]
#[case("/inference/v1/generate", RequestKind::Generate)]
#[case("/v1/chat/completions/render", RequestKind::Other)]
#[case("/v1/models", RequestKind::Other)]
#[case("", RequestKind::Other)]
fn kind_is_told_by_the_end_of_the_path(#[case] path: &str, #[case] kind: RequestKind) {
    assert_eq!(RequestKind::of(path), kind);
}

#[rstest]
#[case("chat", RequestKind::Chat)]
#[case("chat-tools", RequestKind::Chat)]
#[case("messages", RequestKind::Messages)]
#[case("responses", RequestKind::Responses)]
fn conversations_of_real_requests_are_read(#[case] name: &str, #[case] kind: RequestKind) {
    let (path, body) = captured_request(name);
    let request = post(&path, body.clone()).unwrap();
    assert_eq!(request.kind, kind);
    assert_eq!(request.model.as_deref(), Some("tiny-qwen2"));
    let [PromptInput::Chat(chat)] = &request.prompts[..] else {
        panic!("one conversation expected: {:?}", request.prompts)
    };
    assert!(!chat.messages.is_empty());
    assert_eq!(chat.tools.is_some(), name == "chat-tools");
    assert_eq!(request.weight(), 1);
    assert_eq!(request.body, body, "the body is kept as it came");
}

#[test]
fn two_prompts_twice_each_weigh_four() {
    let (path, body) = captured_request("completion-two-prompts-n2");
    let request = post(&path, body).unwrap();
    assert_eq!(request.prompts.len(), 2);
    assert_eq!((request.prompt_count, request.n, request.weight()), (2, 2, 4));
}

#[test]
fn generate_carries_token_ids() {
    let (path, body) = captured_request("generate-stream");
    let request = post(&path, body).unwrap();
    let [PromptInput::Tokens(prompt)] = &request.prompts[..] else {
        panic!("ids expected")
    };
    assert_eq!((prompt.ids.len(), prompt.matchable), (20, 20));
    assert!(request.stream);
}

#[rstest]
#[case::text(json!("a"), vec![text("a")], 1)]
#[case::texts(json!(["a", "b", "a"]), vec![text("a"), text("b")], 3)]
#[case::ids(json!([1, 2, 3]), vec![tokens(&[1, 2, 3])], 1)]
#[case::lists_of_ids(json!([[1, 2], [1, 2], [3]]), vec![tokens(&[1, 2]), tokens(&[3])], 3)]
#[case::mixed(json!(["a", [1]]), vec![text("a"), tokens(&[1])], 2)]
#[case::empty(json!([]), vec![], 1)]
#[case::object(json!({"prompt": "a"}), vec![], 1)]
#[case::negative(json!([-1]), vec![], 1)]
fn prompts_of_every_form(#[case] prompt: Value, #[case] distinct: Vec<PromptInput>, #[case] count: u32) {
    let request = post_json("/v1/completions", &json!({"prompt": prompt}));
    assert_eq!((request.prompts, request.prompt_count), (distinct.clone(), count));
    let request = post_json("/v1/embeddings", &json!({"input": prompt, "n": 7}));
    assert_eq!(
        (request.prompts, request.prompt_count, request.n),
        (distinct, count, 1)
    );
}

#[test]
fn fields_that_change_the_key_space_or_the_load_are_read() {
    let request = post_json(
        "/v1/completions",
        &json!({
            "prompt": "a", "n": 3, "cache_salt": "s", "stream": true, "model": "m\u{e9}", "add_special_tokens": false,
            "vllm_xargs": {"kv_cache_report_mode": "full"}, "prompt_cache_key": "user-1", "unknown": {"deep": [1]},
        }),
    );
    assert_eq!(request.model.as_deref(), Some("mé"));
    assert_eq!(request.cache_salt.as_deref(), Some("s"));
    assert_eq!(request.session, Some(xxh3_64(b"user-1")));
    assert!(request.stream && request.report_mode);
    assert_eq!(request.n, 3);
    assert!(matches!(
        &request.prompts[..],
        [PromptInput::Text {
            add_special_tokens: false,
            ..
        }]
    ));
    let chat = post_json(
        "/v1/chat/completions",
        &json!({
            "messages": [{"role": "user", "content": "a"}], "n": 2.0, "cache_salt": "s", "stream": true,
            "model": "m", "vllm_xargs": {"kv_cache_report_mode": "full"},
        }),
    );
    assert_eq!((chat.n, chat.stream, chat.report_mode), (2, true, true));
    assert_eq!(
        (chat.model.as_deref(), chat.cache_salt.as_deref()),
        (Some("m"), Some("s"))
    );
}

#[rstest]
#[case::text_only(json!("hello"), false, true)]
#[case::echoed(json!("hello"), true, false)]
#[case::with_an_image(json!([{"type": "image_url", "image_url": {"url": "data:,"}}]), false, false)]
fn given_ids_are_used_where_the_engine_uses_them(
    #[case] content: Value,
    #[case] echo: bool,
    #[case] used: bool,
) {
    let request = post_json(
        "/v1/chat/completions",
        &json!({
            "messages": [{"role": "user", "content": content}], "echo": echo,
            "kv_transfer_params": {"prompt_token_ids": [5, 6, 7]},
        }),
    );
    assert_eq!(request.prompts == vec![tokens(&[5, 6, 7])], used);
    assert_eq!(request.images, u32::from(content.is_array()));
}

#[test]
fn media_without_a_hash_end_the_comparable_part() {
    let features = |hashes: Value| {
        json!({
            "token_ids": [1, 2, 3, 4, 5, 6],
            "features": {"mm_hashes": {"image": hashes}, "mm_placeholders": {"image": [{"offset": 1, "length": 2}, {"offset": 4, "length": 1}]}},
        })
    };
    let matchable = |body: &Value| match &post_json("/inference/v1/generate", body).prompts[..] {
        [PromptInput::Tokens(prompt)] => (prompt.matchable, prompt.media.len()),
        other => panic!("ids expected: {other:?}"),
    };
    assert_eq!(matchable(&features(json!(["a", "b"]))), (6, 2));
    assert_eq!(matchable(&features(json!(["a", null]))), (4, 2));
    assert_eq!(matchable(&json!({"token_ids": [1], "features": null})), (1, 0));
    assert_eq!(matchable(&json!({"token_ids": [1], "features": "new"})), (0, 0));
}

#[rstest]
#[case::cut(
    "{\"model\": \"m\", \"prompt\": ",
    "EOF while parsing a value at line 1 column 25"
)]
#[case::stray("{\"model\": oops}", "expected value at line 1 column 11")]
#[case::list("[1]", "must be a JSON object")]
#[case::after("{} {}", "trailing characters at line 1 column 4")]
fn bad_json_is_refused_with_its_position(
    #[case] body: &'static str,
    #[case] said: &str,
    #[values(
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/messages",
        "/inference/v1/generate"
    )]
    path: &str,
) {
    let refusal = post(path, body).unwrap_err();
    assert_eq!(refusal.status(), 400);
    assert!(refusal.message.contains(said), "{}", refusal.message);
}

#[rstest]
#[case::no_body("/v1/chat/completions", "")]
#[case::no_messages("/v1/chat/completions", "{\"model\": \"m\"}")]
#[case::wrong_types(
    "/v1/completions",
    "{\"prompt\": {\"a\": 1}, \"n\": \"x\", \"stream\": 3, \"vllm_xargs\": 1}"
)]
#[case::unknown_path("/v1/audio/transcriptions", "--boundary")]
fn what_the_engine_will_judge_is_placed_by_load(#[case] path: &str, #[case] body: &'static str) {
    let request = post(path, body).unwrap();
    assert_eq!(request.prompts, vec![]);
    assert_eq!(request.weight(), 1);
    assert_eq!(request.body, body);
}

#[test]
fn a_compressed_body_is_not_read() {
    let asked = Asked {
        head: Head {
            path: "/v1/chat/completions".to_owned(),
            encoded: true,
            ..Head::default()
        },
        subset: None,
        body: Bytes::from_static(&[0x1f, 0x8b]),
    };
    assert_eq!(read(asked).unwrap().prompts, vec![]);
}

#[test]
fn a_get_is_placed_by_load_whatever_its_path() {
    let asked = Asked {
        head: Head {
            method: Some("GET".to_owned()),
            path: "/v1/chat/completions".to_owned(),
            request_id: Some("r".to_owned()),
            ..Head::default()
        },
        ..Asked::default()
    };
    let request = read(asked).unwrap();
    assert_eq!(
        (request.kind, request.request_id.as_str()),
        (RequestKind::Other, "r")
    );
}

#[test]
fn of_a_repeated_field_the_last_counts() {
    let request = post("/v1/completions", "{\"prompt\": \"a\", \"prompt\": \"b\"}").unwrap();
    assert_eq!(request.prompts, vec![text("b")]);
}
