//! Real time against model time.

use std::time::{Duration, Instant};

use lmetric_engine::{Chunk, Gpu, Model, StepTime, StepWork};
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::support::{fleet, open, state};

fn model_ttft(tokens: u32) -> Duration {
    let work = StepWork {
        chunks: vec![Chunk { tokens, before: 0 }],
        ..StepWork::default()
    };
    StepTime::new(&Gpu::h20(), &Model::qwen2_7b()).duration(&work)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_engines_first_token_comes_when_the_model_says() {
    const SPEED: u32 = 4;
    let fleet = fleet(&format!("--speed {SPEED}")).await;
    let address = fleet.sites()[0].address;
    let expected = model_ttft(2048);
    let mut measured = Vec::new();
    for nth in 0..7_u32 {
        let prompt: Vec<u32> = (nth * 4096..nth * 4096 + 2048).collect();
        let body = json!({"prompt": prompt, "max_tokens": 2, "stream": true}).to_string();
        let began = Instant::now();
        let (mut stream, mut seen) =
            open(address, "/v1/completions", &serde_json::from_str(&body).unwrap()).await;
        while !seen.windows(5).any(|window| window == b"data:") {
            let mut more = [0; 4096];
            let length = stream.read(&mut more).await.unwrap();
            seen.extend_from_slice(&more[..length]);
        }
        measured.push(began.elapsed() * SPEED);
    }
    // the machine may be busy with other tests: the best of seven is what the server can do
    let best = measured.iter().min().unwrap();
    let over = best.as_secs_f64() / expected.as_secs_f64() - 1.0;
    assert!(
        (-0.001..0.05).contains(&over),
        "{measured:?}, the model says {expected:?}"
    );
    fleet.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lateness_does_not_add_up() {
    // 300 decode steps of 6 ms at speed 30: every wake-up is late by a part of a step
    let fleet = fleet("--speed 30").await;
    let address = fleet.sites()[0].address;
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 1500});
    let began = Instant::now();
    let answer = crate::support::post(address, "/v1/completions", &body).await;
    let took = began.elapsed() * 30;
    assert_eq!(answer.status, 200);
    let time = StepTime::new(&Gpu::h20(), &Model::qwen2_7b());
    let decodes: Duration = (0..1499)
        .map(|at| {
            time.duration(&StepWork {
                decodes: 1,
                decode_context: 4 + at,
                ..StepWork::default()
            })
        })
        .sum();
    let expected = model_ttft(3) + decodes;
    let over = took.as_secs_f64() / expected.as_secs_f64() - 1.0;
    assert!(
        (-0.001..0.10).contains(&over),
        "{took:?}, the model says {expected:?}"
    );
    assert_eq!(state(address).await["steps"], 1500);
    fleet.shutdown(Duration::ZERO).await;
}
