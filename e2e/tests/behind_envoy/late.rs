//! A picker that starts when most of what the engine holds is no longer in its replay ring.

use std::time::Duration;

use lmetric_testkit::{Plug, Stage, StageOptions, token_completion};

use crate::support::{post_as, predicted, tokens};

const CONVERSATIONS: u64 = 40;

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_late_picker_learns_each_conversation_from_its_next_two_turns() {
    for plug in [Plug::Light, Plug::Full] {
        let mut options = StageOptions::new(plug).fleet(1, 50.0);
        options.engines.buffer_steps = 200;
        let mut stage = Stage::start(options).await.unwrap();
        let mut prompts: Vec<_> = (0..CONVERSATIONS).map(|n| tokens(n, 600)).collect();
        for prompt in &mut prompts {
            turn(&stage, "before", prompt).await;
        }
        stage.picker.kill();
        // one batch of events, at least, for each
        let engine = stage.engines.client(0);
        for n in 0..2_200 {
            let body = token_completion(stage.model(), &tokens(10_000 + n, 20), 1, false);
            assert!(
                engine
                    .post("/v1/completions", &body)
                    .await
                    .unwrap()
                    .status
                    .is_success()
            );
        }
        stage.picker.start_again().await.unwrap();
        stage.all_ready().await.unwrap();
        let state = stage
            .admin()
            .endpoints()
            .await
            .unwrap()
            .into_values()
            .next()
            .unwrap();
        assert_eq!(state.source.to_uppercase(), "PARTIAL", "{plug:?}");

        let mut equal = 0;
        for n in 0..3 {
            for (c, prompt) in prompts.iter_mut().enumerate() {
                let id = format!("turn-{n}-{c}");
                let cached = turn(&stage, &id, prompt).await;
                assert!(cached >= 500, "the engine still holds the conversation: {cached}");
                equal += usize::from(n == 2 && predicted(&stage, &id).await.unwrap() == cached);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        println!("{plug:?}: predicted = real for {equal} of {CONVERSATIONS} conversations");
        assert!(
            equal * 100 >= CONVERSATIONS as usize * 95,
            "{plug:?}: {equal} of {CONVERSATIONS}"
        );
    }
}

/// One turn: the prompt so far plus 50 tokens. Returns the tokens that the engine found in its cache.
async fn turn(stage: &Stage, id: &str, prompt: &mut Vec<u32>) -> u64 {
    prompt.extend(tokens(prompt.len() as u64 + u64::from(prompt[0]), 50));
    let body = token_completion(stage.model(), prompt, 4, false);
    let answer = post_as(stage, id, "/v1/completions", &body).await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    answer.cached_tokens().unwrap()
}
