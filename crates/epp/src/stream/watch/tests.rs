use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::testing::captured;

fn watch<'a>(content_type: &str, chunks: impl IntoIterator<Item = &'a [u8]>) -> Findings {
    let mut watcher = Watcher::new(content_type, None);
    for chunk in chunks {
        watcher.push(chunk);
    }
    watcher.findings()
}

#[rstest]
#[case("chat", Some(0))]
#[case("chat-again-cached", Some(112))]
#[case("chat-tools", Some(96))]
#[case("chat-stream", None)]
#[case("chat-stream-usage", Some(112))]
#[case("chat-stream-n2", None)]
#[case("chat-stream-token-ids", None)]
#[case("completion", Some(0))]
#[case("completion-stream", None)]
#[case("completion-stream-usage", Some(112))]
#[case("generate-stream", None)]
#[case("messages", Some(16))]
#[case("messages-stream", Some(16))]
#[case("responses", Some(0))]
#[case("responses-stream", Some(16))]
fn finds_output_and_cached_tokens_in_real_answers(#[case] name: &str, #[case] cached_tokens: Option<u64>) {
    let answer = captured(name);
    let whole = watch(&answer.content_type, [&answer.body[..]]);
    assert_eq!((whole.output, whole.cached_tokens), (true, cached_tokens));
    let bytes = answer.body.chunks(1);
    assert_eq!(watch(&answer.content_type, bytes), whole);
}

#[rstest]
#[case("chat", Some(6))]
#[case("completion-two-prompts-n2", Some(24))]
#[case("chat-stream-usage", Some(6))]
#[case("messages-stream", Some(6))]
#[case("responses-stream", Some(6))]
#[case("completion-stream", None)]
#[case("chat-stream", None)]
fn the_engines_count_of_generated_tokens_is_found(#[case] name: &str, #[case] tokens: Option<u64>) {
    let answer = captured(name);
    let found = watch(&answer.content_type, [&answer.body[..]]);
    assert_eq!(found.output_tokens, tokens);
}

#[rstest]
#[case("completion-stream", 6)]
// the first event of a chat says only who speaks
#[case("chat-stream", 7)]
fn vllm_sends_an_event_for_each_token(#[case] name: &str, #[case] events: u64) {
    let answer = captured(name);
    let found = watch(&answer.content_type, [&answer.body[..]]);
    assert_eq!(found.output_events, events);
}

/// Every event of a stream, and whether it is the first with output.
#[rstest]
#[case("chat-stream", 0)]
#[case("completion-stream-usage", 0)]
#[case("generate-stream", 0)]
#[case("messages-stream", 2)]
#[case("responses-stream", 4)]
fn output_begins_with_the_first_generated_event(#[case] name: &str, #[case] first: usize) {
    let answer = captured(name);
    let text = std::str::from_utf8(&answer.body).unwrap();
    let mut watcher = Watcher::new(&answer.content_type, None);
    let begun = text.split_inclusive("\n\n").position(|event| {
        watcher.push(event.as_bytes());
        watcher.findings().output
    });
    assert_eq!(begun, Some(first));
}

#[rstest]
#[case::comment(": keep-alive\n\n")]
#[case::ping("event: ping\ndata: {\"type\": \"ping\"}\n\n")]
#[case::no_choices("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3}}\n\n")]
#[case::error("data: {\"error\":{\"message\":\"no\",\"type\":\"x.delta\",\"code\":500}}\n\n")]
#[case::done("data: [DONE]\n\n")]
#[case::null_text("data: {\"choices\":[{\"text\":null,\"token_ids\":null}]}\n\n")]
#[case::text_elsewhere("data: {\"response\":{\"choices\":[{\"text\":\"x\"}]}}\n\n")]
#[case::nested_type("data: {\"item\":{\"type\":\"response.output_text.delta\"}}\n\n")]
fn what_is_no_output_is_not_taken_for_it(#[case] event: &str) {
    assert!(!watch("text/event-stream", [event.as_bytes()]).output);
}

#[rstest]
#[case::line_feed("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n")]
#[case::carriage_returns("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\r\n\r\n")]
#[case::lone_returns(": c\r\rdata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\r\r")]
#[case::no_space("data:{\"choices\":[{\"text\":\"\"}]}\n")]
#[case::data_over_two_lines("data: {\"choices\":\ndata: [{\"text\":\"x\"}]}\n\n")]
#[case::events_without_blank_lines("data: {\"a\":1}\ndata: {\"choices\":[{\"text\":\"x\"}]}\n")]
#[case::broken_event_before("data: {\"choices\": oops]\n\ndata: {\"choices\":[{\"text\":\"x\"}]}\n\n")]
#[case::name_alone("event: response.reasoning_text.delta\n")]
#[case::tool_call("data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{}]}}]}\n\n")]
fn output_is_found_in_every_form_of_the_stream(#[case] events: &str) {
    assert!(watch("text/event-stream; charset=utf-8", [events.as_bytes()]).output);
}

#[test]
fn a_compressed_answer_begins_with_its_first_byte() {
    let mut watcher = Watcher::new("text/event-stream", Some("gzip"));
    watcher.push(b"");
    assert!(!watcher.findings().output);
    watcher.push(&[0x1f]);
    assert!(watcher.findings().output);
}

proptest! {
    #[test]
    fn where_chunks_are_cut_changes_nothing(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "data: ", "data:", "event: ", "\n", "\n\n", "\r\n", "\r", ": note\n", "ping", "response.x.delta",
            "{\"choices\":[{\"delta\":{}}]}", "{\"choices\":[", "{\"text\":\"a\\\"b\"}]}", "{\"usage\":{\"cache_read_input_tokens\":",
            "12", "}}", "{\"type\":\"content_block_delta\"}", "{\"message\":{\"usage\":{\"cache_read_input_tokens\":7}}}", "x", " ",
        ]), 0..30),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let text: String = pieces.concat();
        let bytes = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| if bytes.is_empty() { 0 } else { cut.index(bytes.len()) }).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(watch("text/event-stream", chunks.clone()), watch("text/event-stream", [bytes]));
        prop_assert_eq!(watch("application/json", chunks), watch("application/json", [bytes]));
    }
}
