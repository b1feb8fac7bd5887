//! Engines are replaced and removed under load, and no request notices.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use crate::load::{Load, all_served};
use crate::support::{on_stage, selector};
use crate::watch::Watch;

/// Tokens of a stream of 10 s at the pool's speed.
const TOKENS: u32 = 170;
const EVERY: Duration = Duration::from_millis(800);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn a_rolling_update_with_no_spare_gpu_fails_no_request() -> anyhow::Result<()> {
    on_stage("rollout", 4, async |stage| {
        let mut pool = stage.pool("p", 4);
        pool["spec"]["rollout"] = json!({"strategy": "RollingUpdate", "maxSurge": 0, "maxUnavailable": 1});
        stage.serve(&pool).await?;
        let load = Load::start(stage.envoy("p").await?, EVERY, TOKENS);
        let watch = Watch::start(stage).await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let image = &stage.cluster.images().vllm_next;
        let patch = json!({"spec": {"engine": {"image": image}}});
        stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
        watch.gone(4, Duration::from_secs(150)).await?;
        stage.ready("p", 4).await?;
        let records = load.finish().await?;
        all_served(&records)?;
        watch.finish().await?.outlived_their_streams(&records)?;
        for pod in stage
            .cluster
            .pods(&stage.namespace, &selector("p", "engine"))
            .await?
        {
            ensure!(pod.image == *image && pod.restarts == 0, "{pod:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn scaling_down_and_up_under_load_fails_no_request() -> anyhow::Result<()> {
    on_stage("scaling", 4, async |stage| {
        stage.serve(&stage.pool("p", 4)).await?;
        let load = Load::start(stage.envoy("p").await?, EVERY, TOKENS);
        let watch = Watch::start(stage).await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        for replicas in [2, 4] {
            let patch = json!({"spec": {"replicas": replicas}});
            stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
            stage.ready("p", replicas).await?;
            stage
                .cluster
                .ready_pods(
                    &stage.namespace,
                    &selector("p", "engine"),
                    replicas as usize,
                    Duration::from_mins(1),
                )
                .await?;
        }
        let records = load.finish().await?;
        all_served(&records)?;
        let seen = watch.finish().await?;
        ensure!(seen.gone.len() == 2, "two engines should have gone: {seen:?}");
        seen.outlived_their_streams(&records)
    })
    .await
}
