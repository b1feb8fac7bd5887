//! Answers against captured ones: the same request gets the same status, keys in the same order, and the same
//! values wherever they do not depend on what a model would say.

use serde_json::Value;
use vllm_sim::Fleet;

use crate::support::{Reply, data, fleet, raw, tokenizer};

async fn captured_fleet() -> Fleet {
    let flags = format!(
        "--served-model-name tiny-qwen2 --max-model-len 2048 --num-gpu-blocks-override 400 --speed 50 \
         --lora-modules lora-a=x lora-b=x --topic kv-events --tokenizer {}",
        tokenizer().display()
    );
    fleet(&flags).await
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(data("http"))
        .unwrap()
        .filter_map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()?
                .strip_suffix(".request.txt")
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

fn file(name: &str, side: &str) -> Vec<u8> {
    std::fs::read(data("http").join(format!("{name}.{side}.txt"))).unwrap()
}

/// Fields whose values are the model's, the moment's or the machine's.
fn is_free(path: &str) -> bool {
    let field = path.rsplit('.').next().unwrap_or(path);
    let free = [
        "id",
        "request_id",
        "created",
        "created_at",
        "text",
        "content",
        "delta",
        "token_ids",
        "item_id",
        "completion_tokens_details",
    ];
    free.contains(&field) || path.ends_with("delta.content")
}

/// Keys in order, and values unless they are free.
fn compare(path: &str, ours: &Value, theirs: &Value, loose: bool) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys = |object: &serde_json::Map<String, Value>| object.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(ours), keys(theirs), "keys of {path}");
            for (name, value) in ours {
                compare(&format!("{path}.{name}"), value, &theirs[name], loose);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if !is_free(path) => {
            assert_eq!(ours.len(), theirs.len(), "length of {path}");
            for (ours, theirs) in ours.iter().zip(theirs) {
                compare(path, ours, theirs, loose);
            }
        }
        _ if is_free(path) || loose => {
            let kind = |value: &Value| std::mem::discriminant(value);
            assert_eq!(kind(ours), kind(theirs), "type of {path}: {ours} and {theirs}");
        }
        _ => assert_eq!(ours, theirs, "value of {path}"),
    }
}

/// Sampled text may be cut into other pieces; what the captures streamed is one token per event all the same.
fn compare_events(name: &str, ours: &Reply, theirs: &Reply) {
    let kinds = |reply: &Reply| -> Vec<String> {
        reply
            .body
            .lines()
            .filter(|line| line.starts_with("event: ") || *line == "data: [DONE]")
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(kinds(ours), kinds(theirs), "{name}");
    let (mut ours, mut theirs) = (ours.events(), theirs.events());
    if name == "chat-stream-n2" {
        // two choices interleave as they like
        for events in [&mut ours, &mut theirs] {
            events.sort_by_key(|event| {
                (
                    event["choices"][0]["index"].as_u64(),
                    event["choices"][0]["finish_reason"].is_string(),
                )
            });
        }
    }
    assert_eq!(ours.len(), theirs.len(), "{name}: events");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        compare(name, ours, theirs, false);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_captured_request_is_answered_in_the_same_shape() {
    let fleet = captured_fleet().await;
    let address = fleet.sites()[0].address;
    let names = names();
    assert!(names.len() > 45, "{} captures", names.len());
    // in the order of the capture, so that the same prompts are cached
    let (first, rest): (Vec<_>, Vec<_>) = names
        .into_iter()
        .partition(|name| name == "chat" || name == "completion");
    for name in first.iter().chain(&rest) {
        let theirs = Reply::parse(&file(name, "response"));
        if name.starts_with("death") {
            continue;
        }
        let ours = raw(address, &file(name, "request")).await.unwrap();
        assert!(ours.complete, "{name}: {ours:?}");
        assert_eq!(ours.status, theirs.status, "{name}: {ours:?}");
        let header = |reply: &Reply, name: &str| {
            let line = reply
                .head
                .lines()
                .find(|line| line.to_ascii_lowercase().starts_with(name));
            line.map(str::to_ascii_lowercase)
        };
        for field in ["content-type", "allow", "server", "transfer-encoding"] {
            assert_eq!(header(&ours, field), header(&theirs, field), "{name}: {field}");
        }
        assert_eq!(
            header(&ours, "endpoint-load-metrics").map(|line| line.len()),
            header(&theirs, "endpoint-load-metrics").map(|line| line.len()),
            "{name}: load header"
        );
        if theirs.body.starts_with('{') {
            let loose = matches!(name.as_str(), "v1-models" | "messages" | "responses");
            compare(name, &ours.json(), &theirs.json(), loose);
        } else {
            compare_events(name, &ours, &theirs);
        }
    }
    fleet.shutdown(std::time::Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_those_of_the_tokenizer() {
    let fleet = captured_fleet().await;
    let address = fleet.sites()[0].address;
    let ids = |text: &Value| text.as_array().unwrap().len();
    let text = serde_json::json!({"model": "tiny-qwen2", "prompt": "Hello, world!"});
    let tokenized = crate::support::post(address, "/tokenize", &text).await.json();
    assert_eq!(
        tokenized["tokens"],
        serde_json::json!([39, 558, 366, 11, 308, 267, 1663, 0])
    );
    let chat =
        serde_json::json!({"model": "tiny-qwen2", "messages": [{"role": "user", "content": "Hello there"}]});
    let tokenized = crate::support::post(address, "/tokenize", &chat).await.json();
    let rendered = crate::support::post(address, "/v1/chat/completions/render", &chat)
        .await
        .json();
    assert_eq!(ids(&tokenized["tokens"]), 32);
    assert_eq!(rendered["token_ids"], tokenized["tokens"]);
    let rendered = crate::support::post(address, "/v1/completions/render", &text)
        .await
        .json();
    assert_eq!(
        rendered[0]["token_ids"],
        serde_json::json!([39, 558, 366, 11, 308, 267, 1663, 0])
    );
    let message = serde_json::json!({"model": "tiny-qwen2", "max_tokens": 4, "messages": chat["messages"]});
    let counted = crate::support::post(address, "/v1/messages/count_tokens", &message)
        .await
        .json();
    assert_eq!(counted["input_tokens"], 32);
    let embeddings = crate::support::post(address, "/v1/embeddings", &text).await;
    assert_eq!(embeddings.status, 404);
    fleet.shutdown(std::time::Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_turn_hits_the_answer_before() {
    let fleet = captured_fleet().await;
    let address = fleet.sites()[0].address;
    let mut messages = vec![serde_json::json!({"role": "user", "content": "When are you open on Saturday?"})];
    let ask = |messages: &[Value]| {
        let body = serde_json::json!({"messages": messages, "max_tokens": 80});
        async move {
            crate::support::post(address, "/v1/chat/completions", &body)
                .await
                .json()
        }
    };
    let first = ask(&messages).await;
    let text = first["choices"][0]["message"]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    let known = first["usage"]["total_tokens"].as_u64().unwrap();
    messages.push(serde_json::json!({"role": "assistant", "content": text}));
    messages.push(serde_json::json!({"role": "user", "content": "And on Sunday?"}));
    let second = ask(&messages).await;
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap();
    // everything but the last token of the answer was computed; only full blocks count
    assert!(cached >= (known - 1) / 16 * 16 - 16, "{cached} of {known} cached");
    fleet.shutdown(std::time::Duration::ZERO).await;
}
