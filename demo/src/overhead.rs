//! What the way through Envoy, picker and HTTP adds: the TTFT of an idle fleet, measured, next to the engine model's own.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use lmetric_engine::{BlockHash, Engine, EngineConfig, Gpu, Model, Output, Prompt, Request, RequestId};
use lmetric_testkit::{Stage, token_completion};
use tokio::time::Instant;

/// Prompt lengths that are tried, around the trace's mean of 12k tokens.
const PROMPTS: [u32; 4] = [4_096, 8_192, 12_288, 16_384];
/// Requests of each length; the median counts.
const REPEATS: u32 = 3;

/// Mean times to first token over the prompts, model time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overhead {
    /// What a client measured.
    pub(crate) measured: Duration,
    /// What the model says.
    pub(crate) model: Duration,
}

impl Overhead {
    /// Share of the model's time that was added.
    pub(crate) fn share(&self) -> f64 {
        self.measured.as_secs_f64() / self.model.as_secs_f64() - 1.0
    }
}

/// Sends single cold prompts to the idle stage, one after another.
pub(crate) async fn measure(stage: &Stage, profile: &str, speed: f64) -> anyhow::Result<Overhead> {
    let mut sums = Overhead {
        measured: Duration::ZERO,
        model: Duration::ZERO,
    };
    for length in PROMPTS {
        let mut times = Vec::new();
        for repeat in 0..REPEATS {
            times.push(ttft(stage, length, repeat).await?);
        }
        times.sort();
        sums.measured += times[times.len() / 2].mul_f64(speed);
        sums.model += model_ttft(profile, length)?;
    }
    let count = PROMPTS.len() as u32;
    Ok(Overhead {
        measured: sums.measured / count,
        model: sums.model / count,
    })
}

async fn ttft(stage: &Stage, length: u32, repeat: u32) -> anyhow::Result<Duration> {
    // every prompt begins with a block that no other has
    let unlike = 50_000 + length + repeat;
    let prompt: Vec<u32> = (0..length)
        .map(|n| if n < 16 { unlike } else { n % 1_000 })
        .collect();
    let body = token_completion(stage.model(), &prompt, 2, true);
    let start = Instant::now();
    let mut stream = stage.client().stream("/v1/completions", &[], &body).await?;
    stream.next().await?.context("no output at all")?;
    let first = start.elapsed();
    stream.finish().await?;
    Ok(first)
}

fn model_ttft(profile: &str, length: u32) -> anyhow::Result<Duration> {
    let model = Model::profile(profile).with_context(|| format!("no profile {profile:?}"))?;
    let config = EngineConfig::new(Gpu::h20(), model, 0.85);
    let tokens: Arc<[u32]> = (0..length).collect();
    let request = Request {
        id: RequestId(1),
        prompt: Prompt::tokens(tokens, BlockHash::root(0, None, None), config.block_size),
        output: Output::Drawn {
            seed: 1,
            vocabulary: Arc::default(),
        },
        max_output: 2,
        report_reused: false,
    };
    let mut engine = Engine::new(config)?;
    engine.add(request, Duration::ZERO)?;
    let mut now = Duration::ZERO;
    loop {
        let step = engine
            .step(now)
            .context("the model stopped before its first token")?;
        now = step.ends();
        if !step.tokens.is_empty() {
            return Ok(now);
        }
    }
}
