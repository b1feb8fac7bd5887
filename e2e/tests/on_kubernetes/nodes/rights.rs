//! While no operator is there a picker loses its service account, and with it the sight of new engines: it says so.

use std::time::Duration;

use anyhow::{Context, ensure};
use lmetric_testkit::poll;

use super::disturbing;
use crate::load::{Load, all_served};
use crate::support::{SYSTEM, Stage, selector};

/// A watch that runs is refused when it is renewed, within a minute, and the refusals count after half a minute.
const NOTICED: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_picker_without_its_service_account_is_not_ready_until_an_operator_mends_it() -> anyhow::Result<()>
{
    disturbing("picker-rights", async |stage| {
        stage.serve(&stage.pool("p", 1)).await?;
        let load = Load::start(stage.envoy("p").await?, Duration::from_millis(500), 2);
        let pickers = stage
            .cluster
            .pods(&stage.namespace, &selector("p", "picker"))
            .await?;
        let admin = stage.cluster.pod(pickers.first().context("no picker")?, 9_090)?;
        operators(stage, 0).await?;
        let account = stage.path("v1", "serviceaccounts", "p-picker");
        stage.cluster.delete(&account).await?;
        let refused = poll(
            "the picker to say that it is refused",
            NOTICED,
            Duration::from_secs(1),
            async || {
                let answer = admin.get("/readyz").await?;
                let why = answer.text();
                ensure!(!answer.status.is_success(), "it is ready: {why}");
                ensure!(why.contains("restart the picker's pod"), "no remedy: {why}");
                anyhow::Ok(())
            },
        )
        .await;
        // what it knows it still serves
        tokio::time::sleep(Duration::from_secs(5)).await;
        operators(stage, 2).await?;
        refused?;
        let deployment = stage.path("apps/v1", "deployments", "p-picker");
        let what = "the picker to be one of the new account";
        stage
            .cluster
            .until(what, Duration::from_mins(1), &deployment, |deployment| {
                let status = &deployment["status"];
                deployment["metadata"]["generation"] == 2
                    && status["observedGeneration"] == 2
                    && ["replicas", "updatedReplicas", "readyReplicas"]
                        .iter()
                        .all(|count| status[*count] == 1)
            })
            .await?;
        stage.ready("p", 1).await?;
        all_served(&load.finish().await?)
    })
    .await
}

/// Waits until so many operators run.
async fn operators(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let replicas = format!("--replicas={count}");
    let deployment = "deployment/lmetric-operator";
    stage
        .cluster
        .kubectl(&["scale", "-n", SYSTEM, &replicas, deployment])
        .await?;
    poll(
        "the operators to be as many as wanted",
        Duration::from_mins(1),
        Duration::from_millis(500),
        async || {
            let pods = stage.cluster.pods(SYSTEM, "").await?;
            let ready = pods.iter().filter(|pod| pod.ready).count();
            ensure!(ready == count && pods.len() == count, "{pods:?}");
            anyhow::Ok(())
        },
    )
    .await?;
    Ok(())
}
