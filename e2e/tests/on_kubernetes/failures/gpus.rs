//! A fleet that holds every accelerator of the cluster.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::told::{Fact, Words, told};
use super::{change, healed, pool_with_envoy, serving};
use crate::load::{Load, all_served};
use crate::support::{Stage, condition, on_steady_stage};
use crate::watch::Watch;

/// Of four accelerators each: all sixteen.
const ENGINES: u32 = 4;
const FULL: &str = "Insufficient nvidia.com/gpu";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_full_fleet_rolls_by_itself_and_says_insufficient_gpu_where_it_cannot() -> anyhow::Result<()> {
    on_steady_stage("full-fleet", 16, async |stage| {
        let mut pool = pool_with_envoy(stage, ENGINES);
        pool["spec"]["parallelism"] = json!({"tensor": 4});
        serving(stage, &pool).await?;
        ensure!(
            stage.cluster.get(&stage.pool_path("p")).await?["status"]["gpus"] == 16,
            "the fleet is not full"
        );
        let load = Load::start(stage.envoy("p").await?, Duration::from_millis(500), 34);
        more_than_there_are(stage).await?;
        by_surge_alone(stage).await?;
        by_itself(stage).await?;
        all_served(&load.finish().await?)
    })
    .await
}

/// Scaled beyond what is there.
async fn more_than_there_are(stage: &Stage) -> anyhow::Result<()> {
    change(stage, &json!({"spec": {"replicas": ENGINES + 1}})).await?;
    let words = Words {
        conditions: &[
            ("Degraded", "True", "InsufficientGPU"),
            ("Ready", "True", "Serving"),
        ],
        message: &[FULL, "free nvidia.com/gpu", "lower spec.replicas"],
    };
    told(stage, &Fact::unscheduled(stage, FULL), &words).await?;
    change(stage, &json!({"spec": {"replicas": ENGINES}})).await?;
    healed(stage, u64::from(ENGINES)).await
}

/// A rollout that may only surge cannot begin.
async fn by_surge_alone(stage: &Stage) -> anyhow::Result<()> {
    let rollout = json!({"strategy": "RollingUpdate", "maxSurge": 1, "maxUnavailable": 0});
    let patch = json!({"spec": {"rollout": rollout, "engine": {"image": stage.cluster.images().vllm_next}}});
    change(stage, &patch).await?;
    let words = Words {
        conditions: &[
            ("Degraded", "True", "InsufficientGPU"),
            ("Ready", "True", "Serving"),
        ],
        message: &[FULL, "spec.rollout.strategy Auto", "maxSurge 0"],
    };
    told(stage, &Fact::unscheduled(stage, FULL), &words).await?;
    let image = &stage.cluster.images().vllm;
    let back = json!({"spec": {
        "rollout": {"strategy": "Auto", "maxSurge": null, "maxUnavailable": null}, "engine": {"image": image},
    }});
    change(stage, &back).await?;
    healed(stage, u64::from(ENGINES)).await
}

/// `Auto` gives up an old engine before each new one, and nothing is wrong meanwhile.
async fn by_itself(stage: &Stage) -> anyhow::Result<()> {
    let watch = Watch::start(stage).await?;
    let (stop, stopped) = watch::channel(false);
    let troubles = tokio::spawn(troubles(stage.cluster.clone(), stage.pool_path("p"), stopped));
    change(
        stage,
        &json!({"spec": {"engine": {"image": stage.cluster.images().vllm_next}}}),
    )
    .await?;
    watch.gone(ENGINES as usize, Duration::from_mins(3)).await?;
    healed(stage, u64::from(ENGINES)).await?;
    watch.finish().await?;
    stop.send_replace(true);
    let seen = troubles.await??;
    ensure!(
        seen.is_empty(),
        "a rollout that goes on by itself was trouble: {seen:#?}"
    );
    let about = |event: &Value| event["regarding"]["name"] == "p" && event["reason"] == "InsufficientGPU";
    let events = stage.path("events.k8s.io/v1", "events", "");
    let told = stage.cluster.list(&events, "").await?;
    ensure!(
        told.iter()
            .any(|event| about(event) && event["action"] == "Rollout"),
        "no Event says that old engines go first"
    );
    Ok(())
}

/// Whatever the pool says against itself until told to stop.
async fn troubles(
    cluster: lmetric_testkit::cluster::Cluster,
    path: String,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<Vec<String>> {
    let mut seen = Vec::new();
    while !*stopped.borrow() {
        let pool = cluster.get(&path).await?;
        for (kind, good) in [("Ready", "True"), ("Degraded", "False")] {
            let (status, reason, message) = condition(&pool, kind);
            if status != good {
                seen.push(format!("{kind}={status}/{reason}: {message}"));
                seen.dedup();
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(seen)
}
