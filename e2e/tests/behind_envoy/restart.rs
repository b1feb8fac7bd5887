//! The picker goes away and comes back, in every way that it can.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use http::StatusCode;
use lmetric_testkit::{Client, Plug, SseStream, Stage, StageOptions, eventually, token_completion};
use tokio::task::JoinHandle;

use crate::support::{quick, settled, tokens};

/// Eight conversations that grow turn by turn until told to stop; answers that are not 200 are counted.
struct Load {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(stage: &Stage) -> Self {
        let (stop, failed, served) = (Arc::default(), Arc::default(), Arc::default());
        let tasks = (0..8).map(|n| {
            let (client, model) = (stage.client(), stage.model().to_owned());
            tokio::spawn(converse(
                client,
                model,
                n,
                Arc::clone(&stop),
                Arc::clone(&failed),
                Arc::clone(&served),
            ))
        });
        let tasks = tasks.collect();
        Self {
            stop,
            failed,
            served,
            tasks,
        }
    }

    async fn stop(self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        (
            self.served.load(Ordering::Relaxed),
            self.failed.load(Ordering::Relaxed),
        )
    }
}

async fn converse(
    client: Client,
    model: String,
    seed: u64,
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
) {
    let mut prompt = tokens(seed, 500);
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        prompt.extend(tokens(1_000 * (seed + 1) + turn, 50));
        let answer = client
            .post("/v1/completions", &token_completion(&model, &prompt, 20, false))
            .await;
        let ok = answer.is_ok_and(|answer| answer.status.is_success());
        if ok { &served } else { &failed }.fetch_add(1, Ordering::Relaxed);
        if !ok {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_picker_restarted_under_load_has_the_whole_index_again() {
    let mut stage = Stage::start(quick(Plug::Light)).await.unwrap();
    let load = Load::start(&stage);
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.picker.stop(Duration::from_secs(10)).await.unwrap();
    stage.picker.start_again().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (served, failed) = load.stop().await;
    assert!(served > 50, "{served} served, {failed} failed");
    let under_load = settled(&stage).await.unwrap();
    assert!(under_load.iter().all(|blocks| *blocks > 50), "{under_load:?}");

    stage.picker.kill();
    stage.picker.start_again().await.unwrap();
    stage.all_ready().await.unwrap();
    assert_eq!(settled(&stage).await.unwrap(), under_load);
}

const CHUNKS: usize = 400;

/// `count` streams that have each given a first token, `CHUNKS - 1` more to come.
async fn streams(stage: &Stage, count: u64) -> Vec<SseStream> {
    let client = stage.client();
    let mut streams = Vec::new();
    for n in 0..count {
        let body = token_completion(stage.model(), &tokens(n, 100), CHUNKS as u32, true);
        let mut stream = client.stream("/v1/completions", &[], &body).await.unwrap();
        assert_eq!(stream.status, StatusCode::OK);
        stream.next().await.unwrap().unwrap();
        streams.push(stream);
    }
    streams
}

async fn assert_whole(streams: Vec<SseStream>) {
    for ended in join_all(streams.into_iter().map(SseStream::finish)).await {
        assert_eq!(ended.unwrap().0, CHUNKS - 1);
    }
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_killed_light_picker_cuts_no_stream() {
    let mut stage = Stage::start(StageOptions::new(Plug::Light).fleet(2, 1.0))
        .await
        .unwrap();
    let streams = streams(&stage, 50).await;
    stage.picker.kill();
    let body = token_completion(stage.model(), &tokens(1, 100), 2, false);
    for _ in 0..5 {
        let refused = stage.client().post("/v1/completions", &body).await.unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    }
    let running: u64 = stage
        .engines
        .states()
        .await
        .unwrap()
        .iter()
        .map(|state| state.running)
        .sum();
    assert_eq!(
        running, 50,
        "all streams are still being served while the picker is down"
    );
    stage.picker.start_again().await.unwrap();
    stage.all_ready().await.unwrap();
    let read = || async { Ok(stage.client().post("/v1/completions", &body).await?.status) };
    eventually(
        "requests to be served again",
        Duration::from_secs(5),
        read,
        |status| *status == StatusCode::OK,
    )
    .await
    .unwrap();
    assert_whole(streams).await;
}

/// New requests wait or get 503 while the picker drains; what is in progress ends whole, and so does the picker.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn sigterm_drains_before_it_ends() {
    for plug in [Plug::Light, Plug::Full] {
        let mut stage = Stage::start(StageOptions::new(plug).fleet(2, 2.0)).await.unwrap();
        let streams = streams(&stage, 20).await;
        stage.picker.terminate();
        assert_whole(streams).await;
        let status = stage
            .picker
            .process_mut()
            .wait(Duration::from_secs(10))
            .await
            .unwrap();
        assert!(status.success(), "{plug:?}: {status}");
    }
}

/// Streams that outlive the drain time: full mode must end them with OK, not cut them.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_drain_that_runs_out_cuts_nothing() {
    for plug in [Plug::Light, Plug::Full] {
        let mut options = StageOptions::new(plug).fleet(2, 1.0);
        options.picker.more = serde_json::json!({"limits": {"drain": "500ms"}});
        let mut stage = Stage::start(options).await.unwrap();
        let streams = streams(&stage, 10).await;
        let status = stage.picker.stop(Duration::from_secs(5)).await.unwrap();
        assert!(status.success(), "{plug:?}: {status}");
        let ended = join_all(streams.into_iter().map(SseStream::finish)).await;
        for one in ended {
            // in full mode the chunks that are on their way to the picker when its stream ends are lost
            let lost = CHUNKS - 1 - one.unwrap().0;
            let most = if plug == Plug::Full { 5 } else { 0 };
            assert!(lost <= most, "{plug:?}: {lost} chunks lost");
        }
    }
}
