//! However a request ends, it is released exactly once.

use std::time::Duration;

use futures::future::join_all;
use lmetric_testkit::{Engines, Plug, Stage, StageOptions, chat, eventually, token_completion};

use crate::support::{quick, tokens};

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_client_that_leaves_frees_picker_and_engine() {
    for plug in [Plug::Light, Plug::Full] {
        let mut options = quick(plug);
        options.engines.speed = 1.0;
        let stage = Stage::start(options).await.unwrap();
        let client = stage.client();

        let mut decoding = client
            .stream(
                "/v1/chat/completions",
                &[],
                &chat(stage.model(), "once upon a time", 4_000, true),
            )
            .await
            .unwrap();
        for _ in 0..3 {
            decoding.next().await.unwrap().unwrap();
        }
        assert_eq!(stage.admin().load().await.unwrap().1, 1, "{plug:?}");
        drop(decoding);
        stage.admin().idle(Duration::from_secs(3)).await.unwrap();
        engines_idle(&stage).await;

        // long enough to be cut while it is still prefilling
        let body = token_completion(stage.model(), &tokens(1, 60_000), 10, true);
        let prefilling = tokio::spawn(async move { client.stream("/v1/completions", &[], &body).await });
        stage
            .admin()
            .load_becomes("Q to rise", Duration::from_secs(5), |q, _| q > 0)
            .await
            .unwrap();
        prefilling.abort();
        drop(prefilling);
        stage.admin().idle(Duration::from_secs(3)).await.unwrap();
        engines_idle(&stage).await;
    }
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn an_engine_killed_in_mid_stream_leaves_no_load_and_others_serve_on() {
    for plug in [Plug::Light, Plug::Full] {
        let mut options = StageOptions::new(plug).fleet(1, 2.0);
        options.picker.speed = 1.0;
        let stage = Stage::start(options.clone()).await.unwrap();
        let mut doomed = Engines::start(stage.net(), 101, options.engines, stage.folder())
            .await
            .unwrap();
        stage
            .picker
            .list(&[stage.engines.entry(0), doomed.entry(0)])
            .unwrap();
        stage
            .admin()
            .ready_endpoints(2, Duration::from_secs(10))
            .await
            .unwrap();

        let client = stage.client();
        let mut streams = Vec::new();
        for n in 0..10 {
            let body = token_completion(stage.model(), &tokens(n, 200), 1_000, true);
            let mut stream = client.stream("/v1/completions", &[], &body).await.unwrap();
            stream.next().await.unwrap().unwrap();
            streams.push(stream);
        }
        let on_doomed = stage.admin().endpoints().await.unwrap()[&doomed.address(0)].bs;
        assert_eq!(on_doomed, 5, "{plug:?}: ten equal requests are shared evenly");
        doomed.process.kill();
        let ended = join_all(streams.into_iter().map(lmetric_testkit::SseStream::finish)).await;
        let whole = ended.iter().filter(|one| one.is_ok()).count();
        assert_eq!(whole, 5, "{plug:?}: {ended:?}");
        stage.admin().idle(Duration::from_secs(5)).await.unwrap();

        let mut errors = 0;
        for n in 0..40 {
            let body = token_completion(stage.model(), &tokens(100 + n, 64), 2, false);
            errors += usize::from(
                !client
                    .post("/v1/completions", &body)
                    .await
                    .unwrap()
                    .status
                    .is_success(),
            );
        }
        assert!(
            errors <= 5,
            "{plug:?}: {errors} of 40 requests went to the dead engine"
        );
    }
}

/// 64 requests that decode, blocks of 128 tokens, no response bodies to look at and no new arrivals: once prefilled, nothing is queued.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn q_is_zero_within_a_second_of_the_last_prefill() {
    let mut options = StageOptions::new(Plug::Light).fleet(2, 1.0);
    options.engines.block_size = 128;
    let stage = Stage::start(options).await.unwrap();
    let client = stage.client();
    let mut streams = Vec::new();
    for n in 0..64 {
        let body = token_completion(stage.model(), &tokens(n, 300 + n as usize * 3), 100_000, true);
        let mut stream = client.stream("/v1/completions", &[], &body).await.unwrap();
        streams.push(tokio::spawn(async move {
            stream.next().await.unwrap().unwrap();
            stream
        }));
    }
    let streams = join_all(streams).await;
    let what = "Q to be 0 under 64 decoding requests";
    let limit = Duration::from_secs(1);
    stage
        .admin()
        .load_becomes(what, limit, |q, bs| q == 0 && bs == 64)
        .await
        .unwrap();
    drop(streams);
    stage.admin().idle(Duration::from_secs(3)).await.unwrap();
}

async fn engines_idle(stage: &Stage) {
    let read = || async {
        let states = stage.engines.states().await?;
        Ok(states
            .iter()
            .map(|state| state.running + state.waiting)
            .sum::<u64>())
    };
    eventually("the engines to be idle", Duration::from_secs(3), read, |busy| {
        *busy == 0
    })
    .await
    .unwrap();
}
