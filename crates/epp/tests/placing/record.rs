//! What is recorded of placed requests, and what is not.

use std::{path::Path, sync::Arc};

use lmetric_api::Record;
use lmetric_epp::{
    guard::{Answer, Place},
    metrics::RecordMetrics,
    record::{Recorder, Writer},
    request::{ParsedRequest, PromptInput, RequestKind},
};
use lmetric_kvevents::{Op, SourceState};
use lmetric_prefix::BlockKey;
use lmetric_scheduler::Outcome;
use lmetric_telemetry::prometheus_client::encoding::text::encode;
use lmetric_tokenize::Tokenized;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{Behaviour, Engine},
    stage::{Stage, completion, endpoint, events, text},
};

/// A picker that records, on one engine.
struct Recorded {
    stage: Stage,
    engine: Engine,
    folder: tempfile::TempDir,
    /// Not running yet.
    writer: Option<Writer>,
    registry: lmetric_telemetry::prometheus_client::registry::Registry,
}

impl Recorded {
    async fn start() -> Self {
        let engine = Engine::start(Behaviour::default()).await;
        let mut stage = Stage::new();
        let folder = tempfile::tempdir().expect("a folder");
        let record = Record::File {
            path: folder.path().join("r.jsonl"),
            max_bytes: 1 << 20,
            files: 2,
        };
        let mut registry = lmetric_telemetry::registry();
        let made = Recorder::new(&record, 4.0, stage.scheduler.clone(), || {
            RecordMetrics::new(&mut registry)
        });
        let (recorder, writer) = made.expect("it records");
        stage.record(recorder);
        stage.reconciler.apply(&[endpoint(engine.address)]);
        stage.ready(1).await;
        Self {
            stage,
            engine,
            folder,
            writer: Some(writer),
            registry,
        }
    }

    /// Places a request and ends it as seen.
    async fn serve(&self, request: ParsedRequest, outcome: Outcome, answer: Answer) {
        let mut placement = self.stage.picker.place(request.into()).await.expect("placed");
        placement.answered(answer);
        placement.finish(outcome);
    }

    /// All lines, written as at the process's end, and the metrics page.
    async fn end(mut self) -> (Vec<Value>, String) {
        let stop = CancellationToken::new();
        stop.cancel();
        self.writer.take().expect("not ended yet").run(stop).await;
        (lines(&self.folder.path().join("r.jsonl")), self.page())
    }

    fn page(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).expect("a page");
        page
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn told(tokens: u64) -> Answer {
    Answer {
        status: Some(200),
        body_seen: true,
        output_tokens: Some(tokens),
        output_events: 0,
    }
}

#[tokio::test]
async fn a_line_has_lengths_and_ids_and_no_text() {
    let recorded = Recorded::start().await;
    for (id, ids) in [("a", 0..40), ("b", 0..33), ("c", 7..23)] {
        let request = completion(&format!("secret-{id}"), ids);
        recorded.serve(request, Outcome::Done, told(9)).await;
    }
    let (lines, page) = recorded.end().await;
    assert_eq!(lines[0], json!({"block_size": 16, "speed": 4, "mode": "full"}));
    let ids: Vec<Vec<u64>> = lines[1..]
        .iter()
        .map(|line| serde_json::from_value(line["hash_ids"].clone()).expect("numbers"))
        .collect();
    assert_eq!(ids.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
    assert_eq!(ids[0][..2], ids[1][..2]);
    assert_ne!(ids[0][2], ids[1][2]);
    assert_ne!(ids[0][0], ids[2][0]);
    let mut last = 0.0;
    for (line, input) in lines[1..].iter().zip([40, 33, 16]) {
        let fields: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["timestamp", "input_length", "output_length", "hash_ids"]);
        assert_eq!(
            (&line["input_length"], &line["output_length"]),
            (&json!(input), &json!(9))
        );
        let at = line["timestamp"].as_f64().expect("a number");
        assert!(at >= last, "{line}");
        last = at;
    }
    assert!(page.contains("record_requests_total 3"), "{page}");
}

#[tokio::test]
async fn without_a_usage_the_length_comes_from_the_blocks_that_are_stored_after_the_prompt() {
    let recorded = Recorded::start().await;
    let source = events(recorded.engine.address);
    let answer = Answer {
        status: Some(200),
        ..Answer::default()
    };
    let mut placement = recorded
        .stage
        .picker
        .place(completion("r", 0..40).into())
        .await
        .expect("placed");
    let prompt = recorded.stage.keys(&(0..40).collect::<Vec<_>>());
    let mut parent = prompt[1];
    // 40 + 100 tokens, the last one not computed: 8 blocks, 2 of them the prompt's
    let decoded: Vec<Op> = (0..6)
        .map(|number| {
            let key = BlockKey::from_raw(1_000 + number);
            Op::Store {
                parent: std::mem::replace(&mut parent, key),
                key,
            }
        })
        .collect();
    recorded.stage.recorder.apply(&source, &decoded[..5]);
    placement.answered(answer);
    placement.finish(Outcome::Done);
    // the last block's event is late, and comes before anybody asks
    recorded.stage.recorder.apply(&source, &decoded[5..]);
    let (lines, _) = recorded.end().await;
    assert_eq!(lines[0]["mode"], "light");
    assert_eq!(lines[1]["estimated"], true);
    let output = lines[1]["output_length"].as_u64().expect("a number");
    assert!(output.abs_diff(100) <= 8, "{output}");
}

#[tokio::test]
async fn what_cannot_be_recorded_is_counted_by_its_reason() {
    let recorded = Recorded::start().await;
    let one = |id: &str| completion(id, 0..64);
    let done = |request| recorded.serve(request, Outcome::Done, told(3));
    done(text("guess", "words that nobody can tokenize")).await;
    done(ParsedRequest {
        prompts: Vec::new(),
        ..one("none")
    })
    .await;
    done(ParsedRequest {
        kind: RequestKind::Embeddings,
        ..one("embedding")
    })
    .await;
    done(ParsedRequest { n: 2, ..one("twice") }).await;
    let both = [0, 64].map(|from| PromptInput::Tokens(Tokenized::plain((from..from + 64).collect())));
    done(ParsedRequest {
        prompts: both.to_vec(),
        prompt_count: 2,
        ..one("list")
    })
    .await;
    let refused = Answer {
        status: Some(400),
        ..Answer::default()
    };
    recorded.serve(one("refused"), Outcome::Done, refused).await;
    recorded
        .serve(one("error"), Outcome::ServerError, Answer::default())
        .await;
    recorded.serve(one("left"), Outcome::ClientAbort, told(3)).await;
    drop(recorded.stage.picker.place(Arc::new(one("lost"))).await);
    recorded.stage.recorder.be(SourceState::Stale);
    let unseen = Answer {
        status: Some(200),
        ..Answer::default()
    };
    recorded.serve(one("unseen"), Outcome::Done, unseen).await;
    let (lines, page) = recorded.end().await;
    assert_eq!(lines, Vec::<Value>::new());
    for (reason, count) in [
        ("estimated", 1),
        ("no_prompt", 2),
        ("several", 2),
        ("failed", 2),
        ("aborted", 1),
        ("lost", 1),
        ("no_length", 1),
        ("too_long", 0),
    ] {
        let line = format!("record_skipped_total{{reason=\"{reason}\"}} {count}");
        assert!(page.contains(&line), "{line} not in {page}");
    }
}

#[tokio::test]
async fn with_a_full_queue_requests_are_dropped_and_counted_and_nobody_waits() {
    let recorded = Recorded::start().await;
    // the writer stands still
    for number in 0..5_000_u32 {
        let request = completion("r", [number]);
        recorded.serve(request, Outcome::Done, told(1)).await;
    }
    let page = recorded.page();
    assert!(
        page.contains("record_dropped_total{reason=\"queue_full\"} 904"),
        "{page}"
    );
    let (lines, _) = recorded.end().await;
    assert_eq!(lines.len(), 1 + 4_096);
}
