//! Streams, several answers at once, aborts, limits and the figures that go with them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{fleet, get, open, post, state, until};

fn prompt(from: u32, tokens: u32) -> Vec<u32> {
    (from..from + tokens).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_and_a_plain_answer_say_the_same() {
    let fleet = fleet("--speed 100").await;
    let address = fleet.sites()[0].address;
    let mut body = json!({"prompt": prompt(1, 40), "max_tokens": 20, "return_token_ids": true});
    let plain = post(address, "/v1/completions", &body).await.json();
    body["stream"] = true.into();
    let stream = post(address, "/v1/completions", &body).await;
    let events = stream.events();
    let text: String = events
        .iter()
        .map(|event| event["choices"][0]["text"].as_str().unwrap())
        .collect();
    let ids: Vec<Value> = events
        .iter()
        .flat_map(|event| event["choices"][0]["token_ids"].as_array().unwrap().clone())
        .collect();
    assert_eq!(plain["choices"][0]["text"], text);
    assert_eq!(plain["choices"][0]["token_ids"], Value::from(ids));
    assert_eq!(events.len(), 20, "one event per token");
    assert!(stream.body.ends_with("data: [DONE]\n\n"));
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_too_many_sequences_is_refused() {
    let fleet = fleet("--speed 100").await;
    let address = fleet.sites()[0].address;
    let prompts: Vec<_> = (0..2_000).map(|number| prompt(number, 4)).collect();
    let body = json!({"prompt": prompts, "max_tokens": 1, "n": 1_000});
    let answer = post(address, "/v1/completions", &body).await;
    assert_eq!(answer.status, 400);
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("2000 prompts times n=1000"), "{message}");
    assert!(message.contains("send fewer prompts or lower n"), "{message}");
    assert_eq!(state(address).await["finished"], 0);
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_prompts_and_answers_are_separate_engine_requests() {
    let fleet = fleet("--speed 100").await;
    let address = fleet.sites()[0].address;
    let body = json!({"prompt": [prompt(1, 40), prompt(500, 24)], "max_tokens": 3, "n": 2, "return_token_ids": true});
    let answer = post(address, "/v1/completions", &body).await.json();
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    assert_ne!(
        choices[0]["token_ids"], choices[1]["token_ids"],
        "answers of one prompt differ"
    );
    assert_eq!(choices[1]["prompt_token_ids"].as_array().unwrap().len(), 40);
    assert_eq!(choices[2]["prompt_token_ids"].as_array().unwrap().len(), 24);
    assert_eq!(answer["usage"]["prompt_tokens"], 64);
    assert_eq!(answer["usage"]["completion_tokens"], 12);
    let state = state(address).await;
    assert_eq!(
        (&state["finished"], &state["generated_tokens"]),
        (&4.into(), &12.into())
    );
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_and_salts_share_nothing() {
    let fleet = fleet("--speed 100 --lora-modules sql=/x poet=/y").await;
    let address = fleet.sites()[0].address;
    let cached = |body: Value| async move {
        let answer = post(address, "/v1/completions", &body).await.json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    let base = json!({"prompt": prompt(1, 40), "max_tokens": 1});
    let variants = [
        base.clone(),
        json!({"prompt": prompt(1, 40), "max_tokens": 1, "model": "sql"}),
        json!({"prompt": prompt(1, 40), "max_tokens": 1, "model": "poet"}),
        json!({"prompt": prompt(1, 40), "max_tokens": 1, "cache_salt": "a"}),
        json!({"prompt": prompt(1, 40), "max_tokens": 1, "cache_salt": "b"}),
        json!({"prompt": prompt(1, 40), "max_tokens": 1, "cache_salt": "a", "model": "sql"}),
    ];
    for expected in [0, 32] {
        for variant in &variants {
            assert_eq!(cached(variant.clone()).await, expected, "{variant}");
        }
    }
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_blocks_streamed_or_not() {
    let fleet = fleet("--speed 1").await;
    let address = fleet.sites()[0].address;
    let body = json!({"prompt": prompt(1, 100), "max_tokens": 100_000, "stream": true});
    let (stream, seen) = open(address, "/v1/completions", &body).await;
    assert!(seen.starts_with(b"HTTP/1.1 200"));
    until("it runs", || async { state(address).await["running"] == 1 }).await;
    drop(stream);
    until("it is aborted", || async { state(address).await["aborted"] == 1 }).await;
    let mut plain = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = json!({"prompt": prompt(1, 100), "max_tokens": 100_000}).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut plain, (head + &body).as_bytes())
        .await
        .unwrap();
    until("the plain one runs", || async {
        state(address).await["running"] == 1
    })
    .await;
    drop(plain);
    until("the plain one is aborted", || async {
        state(address).await["aborted"] == 2
    })
    .await;
    let state = state(address).await;
    for (field, expected) in [("running", 0), ("waiting", 0), ("open", 0)] {
        assert_eq!(state[field], expected, "{field}");
    }
    assert_eq!(state["ranks"][0]["kv_usage"], 0.0);
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_nobody_up_and_misses_nothing() {
    let fleet = fleet("--speed 200").await;
    let address = fleet.sites()[0].address;
    let body = json!({"prompt": prompt(1, 20), "max_tokens": 20_000, "stream": true, "ignore_eos": true});
    let (mut stream, mut bytes) = open(address, "/v1/completions", &body).await;
    // nobody reads while the engine finishes; sockets are full long before
    until("the engine is done", || async {
        state(address).await["finished"] == 1
    })
    .await;
    let quick = post(
        address,
        "/v1/completions",
        &json!({"prompt": prompt(900, 20), "max_tokens": 3}),
    )
    .await;
    assert_eq!(quick.status, 200);
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut bytes)
        .await
        .unwrap();
    let reply = crate::support::Reply::parse(&bytes);
    assert!(reply.complete);
    assert_eq!(reply.events().len(), 20_000);
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_without_a_limit_ends_by_itself() {
    let fleet = fleet("--speed 1000 --mean-output 30").await;
    let address = fleet.sites()[0].address;
    let mut lengths = Vec::new();
    for turn in 0..20 {
        let body = json!({"messages": [{"role": "user", "content": format!("question {turn}")}]});
        let answer = post(address, "/v1/chat/completions", &body).await.json();
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        lengths.push(answer["usage"]["completion_tokens"].as_u64().unwrap());
    }
    let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
    assert!((12.0..70.0).contains(&mean), "{lengths:?}");
    let limited = json!({"messages": [{"role": "user", "content": "question"}], "max_tokens": 7});
    let answer = post(address, "/v1/chat/completions", &limited).await.json();
    assert_eq!(
        (
            &answer["choices"][0]["finish_reason"],
            &answer["usage"]["completion_tokens"]
        ),
        (&"length".into(), &7.into())
    );
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_answered_503() {
    let fleet = fleet("--speed 1 --max-num-seqs 1 --max-num-queued-reqs 2").await;
    let address = fleet.sites()[0].address;
    let body = json!({"prompt": prompt(1, 20), "max_tokens": 50_000, "stream": true});
    let _running = open(address, "/v1/completions", &body).await;
    until("one runs", || async { state(address).await["running"] == 1 }).await;
    let _first = open(address, "/v1/completions", &body).await;
    let _second = open(address, "/v1/completions", &body).await;
    until("two wait", || async { state(address).await["waiting"] == 2 }).await;
    let refused = post(
        address,
        "/v1/completions",
        &json!({"prompt": [1], "max_tokens": 1}),
    )
    .await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["error"]["type"], "Service Unavailable");
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_behind_one_port_are_engines_of_their_own() {
    let fleet = fleet("--speed 100 --data-parallel-size 2").await;
    let address = fleet.sites()[0].address;
    let ask = |rank: u32| async move {
        let body = json!({"prompt": prompt(1, 40), "max_tokens": 1}).to_string();
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-data-parallel-rank: {rank}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        crate::support::raw(address, request.as_bytes()).await.unwrap()
    };
    for (rank, cached) in [(0, 0), (1, 0), (1, 32), (0, 32)] {
        assert_eq!(
            ask(rank).await.json()["usage"]["prompt_tokens_details"]["cached_tokens"],
            cached
        );
    }
    assert_eq!(ask(2).await.status, 400);
    let sources = get(address, "/kv_event_sources").await.json();
    assert_eq!(sources.as_object().unwrap().len(), 2);
    let page = get(address, "/metrics").await.body;
    for rank in 0..2 {
        let line = format!("vllm:prompt_tokens_total{{engine=\"{rank}\",model_name=\"qwen2-7b\"}} 80.0");
        assert!(page.contains(&line), "{line}");
    }
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_page_has_vllms_families_and_moves() {
    let fleet = fleet("--speed 100 --metrics-page full --served-model-name m --lora-modules a=x b=x").await;
    let address = fleet.sites()[0].address;
    for _ in 0..2 {
        post(
            address,
            "/v1/completions",
            &json!({"prompt": prompt(1, 40), "max_tokens": 5}),
        )
        .await;
    }
    let page = get(address, "/metrics").await;
    assert!(page.body.len() > 50_000, "{} bytes", page.body.len());
    let families = |page: &str| -> Vec<String> {
        page.lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .map(str::to_owned)
            .collect()
    };
    let captured = include_str!("../../data/metrics-page.txt");
    assert_eq!(families(&page.body), families(captured));
    for sample in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0",
        "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"m\",reason=\"capacity\"} 0.0",
        "vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"m\"} 80.0",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 32.0",
        "vllm:prompt_tokens_by_source_total{engine=\"0\",model_name=\"m\",source=\"local_compute\"} 48.0",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 10.0",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"m\"} 2.0",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 2.0",
        "vllm:request_generation_tokens_bucket{engine=\"0\",le=\"5.0\",model_name=\"m\"} 2.0",
    ] {
        assert!(page.body.lines().any(|line| line == sample), "{sample}");
    }
    // every sample that both have carries the same labels
    let labels = |line: &str| {
        let (name, rest) = line.split_once('{')?;
        let names: Vec<&str> = rest
            .split_once('}')?
            .0
            .split("\",")
            .filter_map(|pair| Some(pair.split_once('=')?.0))
            .collect();
        Some((name.to_owned(), names.join(",")))
    };
    let ours: std::collections::BTreeSet<_> = page
        .body
        .lines()
        .filter(|line| line.starts_with("vllm:"))
        .filter_map(labels)
        .collect();
    let theirs: std::collections::BTreeSet<_> = captured
        .lines()
        .filter(|line| line.starts_with("vllm:"))
        .filter_map(labels)
        .collect();
    // the captured page is of an engine that had used no adapter yet
    for sample in ours.iter().filter(|(name, _)| name != "vllm:lora_requests_info") {
        assert!(theirs.contains(sample), "{sample:?} is not vLLM's");
    }
    fleet.shutdown(Duration::ZERO).await;
}
