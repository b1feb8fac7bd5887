//! The operator dies in the middle of its work; another takes over and ends it.

use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::Signal;
use serde_json::json;

use crate::load::{Load, all_served};
use crate::support::{SYSTEM, leader_to_lose, on_stage};
use crate::watch::Watch;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn a_rollout_goes_on_when_the_leading_operator_is_killed() -> anyhow::Result<()> {
    on_stage("operator-lost", 2, async |stage| {
        let mut pool = stage.pool("p", 2);
        pool["spec"]["rollout"] = json!({"strategy": "RollingUpdate", "maxSurge": 0, "maxUnavailable": 1});
        stage.serve(&pool).await?;
        let lost = leader_to_lose().await;
        let load = Load::start(stage.envoy("p").await?, Duration::from_millis(800), 80);
        let watch = Watch::start(stage).await?;
        let patch = json!({"spec": {"engine": {"image": stage.cluster.images().vllm_next}}});
        stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
        stage
            .cluster
            .until(
                "the rollout to begin",
                Duration::from_secs(20),
                &stage.pool_path("p"),
                |pool| pool["status"]["observedGeneration"] == pool["metadata"]["generation"],
            )
            .await?;
        let leader = stage.cluster.leader().await?;
        stage
            .cluster
            .signal(SYSTEM, &leader, "operator", Signal::KILL)
            .await?;
        // seen by nobody but the next leader
        let patch = json!({"spec": {"disruption": {"maxUnavailable": 2}}});
        stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
        stage
            .cluster
            .until(
                "the next leader to act",
                Duration::from_mins(1),
                &stage.path("policy/v1", "poddisruptionbudgets", "p-engine"),
                |budget| budget["spec"]["maxUnavailable"] == 2,
            )
            .await?;
        drop(lost);
        watch.gone(2, Duration::from_secs(90)).await?;
        stage.ready("p", 2).await?;
        let records = load.finish().await?;
        all_served(&records)?;
        let next = stage.cluster.leader().await?;
        ensure!(!next.is_empty(), "nobody leads");
        Ok(())
    })
    .await
}
