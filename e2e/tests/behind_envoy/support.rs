//! What several tests need.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use bytes::Bytes;
use lmetric_testkit::{Answer, Plug, Stage, StageOptions, eventually};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::Value;

/// The checkout. Asked at run time: those that share a target folder may share this program.
pub(crate) fn repository() -> PathBuf {
    let package: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.join("..")
}

/// The tiny Qwen2 tokenizer and chat template.
pub(crate) fn tokenizer() -> PathBuf {
    repository().join("crates/tokenize/testdata/tiny-qwen2")
}

/// Two engines that answer at once, with a tokenizer.
pub(crate) fn quick(plug: Plug) -> StageOptions {
    StageOptions::new(plug).fleet(2, 20.0).tokenizer(&tokenizer())
}

/// Random token ids of the tiny vocabulary, special ones left out.
pub(crate) fn tokens(seed: u64, length: usize) -> Vec<u32> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..length).map(|_| rng.random_range(300..2_000)).collect()
}

/// `POST path` under a request id of its own.
pub(crate) async fn post_as(stage: &Stage, id: &str, path: &str, body: &Value) -> anyhow::Result<Answer> {
    stage
        .client()
        .exchange(
            "POST",
            path,
            &[("x-request-id", id)],
            Bytes::from(body.to_string()),
        )
        .await
}

/// The picker's decision on request `id`.
pub(crate) async fn decision(stage: &Stage, id: &str) -> anyhow::Result<Value> {
    let answer = stage.admin().json(&format!("/debug/decisions?id={id}")).await?;
    let found = answer["decisions"].get(0).cloned();
    found.with_context(|| format!("no decision on {id}: {answer}"))
}

/// Where request `id` was sent.
pub(crate) async fn winner(stage: &Stage, id: &str) -> anyhow::Result<SocketAddr> {
    let decision = decision(stage, id).await?;
    Ok(decision["winner"]
        .as_str()
        .with_context(|| format!("no winner in {decision}"))?
        .parse()?)
}

/// Hit tokens that the picker predicted for request `id` at its winner.
pub(crate) async fn predicted(stage: &Stage, id: &str) -> anyhow::Result<u64> {
    let decision = decision(stage, id).await?;
    let winner = &decision["winner"];
    let candidates = decision["candidates"].as_array().context("no candidates")?;
    let chosen = candidates
        .iter()
        .find(|one| one["address"] == *winner || one[0] == *winner);
    let chosen = chosen.with_context(|| format!("the winner is not among the candidates: {decision}"))?;
    let hit = chosen["hit"].as_u64().or_else(|| chosen[1]["hit"].as_u64());
    hit.with_context(|| format!("no hit in {chosen}"))
}

/// Waits until the engines are idle and the picker has applied all their events: blocks held, by the engine's and by the
/// picker's account, equal on every endpoint. Returns them.
pub(crate) async fn settled(stage: &Stage) -> anyhow::Result<Vec<u64>> {
    stage.admin().idle(Duration::from_secs(20)).await?;
    let read = || async {
        let mut pairs = Vec::new();
        let seen = stage.admin().endpoints().await?;
        for (n, address) in stage.engines.addresses().into_iter().enumerate() {
            let state = stage.engines.state(n as u8).await?;
            ensure!(
                state.running == 0 && state.waiting == 0,
                "engine {n} is busy: {state:?}"
            );
            pairs.push((
                seen.get(&address).context("endpoint lost")?.blocks,
                state.cached_blocks,
            ));
        }
        Ok(pairs)
    };
    let limit = Duration::from_secs(10);
    let pairs = eventually(
        "the picker's blocks to equal the engines'",
        limit,
        read,
        |pairs: &Vec<(u64, u64)>| pairs.iter().all(|(picker, engine)| picker == engine),
    )
    .await?;
    Ok(pairs.into_iter().map(|(picker, _)| picker).collect())
}
