//! Each thing that goes wrong with a pool has a condition and a reason of its own, soon after Kubernetes itself shows it, in words that
//! say what to do; what serves goes on serving; and once a person has done it, the pool is well again.
//!
//! Every test prints one line for each reason: when Kubernetes showed it, and how much later the pool said it.

mod containers;
mod gpus;
mod images;
mod parts;
mod probes;
mod rejected;
mod scheduling;
mod secrets;
mod starts;
mod told;
mod volumes;

use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::chat;
use serde_json::{Value, json};

use crate::support::{MODEL, STARTING, Stage, condition};

/// An image of a registry that nobody serves, on the node itself: the refusal comes at once.
const NOWHERE: &str = "127.0.0.1:1/nothing:v0.33.0";
/// Kubernetes tries again by itself, with growing pauses.
const HEALING: Duration = Duration::from_mins(2);

/// A pool of simulated engines that are probed every second, without an Envoy.
fn pool(stage: &Stage, replicas: u32) -> Value {
    let mut pool = stage.pool("p", replicas);
    pool["spec"]["gateway"] = json!({});
    pool["spec"]["probes"] = json!({
        "startup": {"periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 60},
        "readiness": {"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2},
        "liveness": {"periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 4},
    });
    pool
}

/// [`pool`] behind an Envoy of its own.
fn pool_with_envoy(stage: &Stage, replicas: u32) -> Value {
    let mut pool = pool(stage, replicas);
    pool["spec"]["gateway"] = stage.pool("p", replicas)["spec"]["gateway"].clone();
    pool
}

/// Gives the simulated engine further flags.
fn with_flags(pool: &mut Value, flags: &str) {
    pool["spec"]["engine"]["env"] =
        json!([{"name": "VLLM_SIM_FLAGS", "value": format!("--speed 0.25 {flags}")}]);
}

/// The same as a change of a pool that exists.
fn new_flags(flags: &str) -> Value {
    let mut change = json!({"spec": {"engine": {}}});
    with_flags(&mut change, flags);
    change
}

async fn make(stage: &Stage, pool: &Value) -> anyhow::Result<()> {
    stage.cluster.create(&stage.pool_path(""), pool).await?;
    Ok(())
}

async fn change(stage: &Stage, patch: &Value) -> anyhow::Result<()> {
    stage.cluster.merge(&stage.pool_path("p"), patch).await?;
    Ok(())
}

/// Waits until all of `replicas` engines serve and nothing is wrong any more.
async fn healed(stage: &Stage, replicas: u64) -> anyhow::Result<()> {
    let what = format!("the pool of {} to be well again", stage.namespace);
    stage
        .cluster
        .until(&what, HEALING, &stage.pool_path("p"), |pool| {
            let status = &pool["status"];
            condition(pool, "Ready").0 == "True"
                && condition(pool, "Degraded").0 == "False"
                && status["readyReplicas"] == replicas
                && status["updatedReplicas"] == replicas
                && status["replicas"] == replicas
        })
        .await?;
    Ok(())
}

/// One request by the pool's Envoy is answered.
async fn answers(stage: &Stage) -> anyhow::Result<()> {
    let body = chat(MODEL, "still there?", 2, false);
    let answer = stage
        .envoy("p")
        .await?
        .post("/v1/chat/completions", &body)
        .await?;
    ensure!(answer.status.is_success(), "{} {}", answer.status, answer.text());
    Ok(())
}

/// Makes a pool and waits until it serves.
async fn serving(stage: &Stage, pool: &Value) -> anyhow::Result<()> {
    make(stage, pool).await?;
    let replicas = pool["spec"]["replicas"].as_u64().unwrap_or(1);
    let what = format!("the pool of {} to serve", stage.namespace);
    stage
        .cluster
        .until(&what, STARTING, &stage.pool_path("p"), |pool| {
            condition(pool, "Ready").0 == "True" && pool["status"]["readyReplicas"] == replicas
        })
        .await?;
    Ok(())
}
