//! A picker loses its service account, and with it the sight of new engines: it says so.

use std::time::Duration;

use anyhow::{Context, ensure};

use crate::load::{Load, all_served};
use crate::support::{condition, on_stage, selector};

/// A watch that runs is refused when it is renewed, within a minute, and the refusals count after half a minute.
const NOTICED: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn a_picker_without_its_service_account_is_not_ready_until_it_is_restarted() -> anyhow::Result<()> {
    on_stage("picker-rights", 2, async |stage| {
        stage.serve(&stage.pool("p", 1)).await?;
        let load = Load::start(stage.envoy("p").await?, Duration::from_millis(500), 2);
        let pickers = stage
            .cluster
            .pods(&stage.namespace, &selector("p", "picker"))
            .await?;
        let admin = stage.cluster.pod(pickers.first().context("no picker")?, 9_090)?;
        let account = stage.path("v1", "serviceaccounts", "p-picker");
        stage.cluster.delete(&account).await?;
        let pool = stage.reason("p", "Ready", "PickerDown", NOTICED).await?;
        let why = admin.get("/readyz").await?.text();
        ensure!(
            why.contains("restart the picker's pod"),
            "no remedy: {why}; the pool says {:?}",
            condition(&pool, "PickerReady")
        );
        // what it knows it still serves
        tokio::time::sleep(Duration::from_secs(5)).await;
        let restart = ["rollout", "restart", "-n", &stage.namespace, "deployment/p-picker"];
        stage.cluster.kubectl(&restart).await?;
        stage.ready("p", 1).await?;
        all_served(&load.finish().await?)
    })
    .await
}
