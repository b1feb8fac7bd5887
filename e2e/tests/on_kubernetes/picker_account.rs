//! A ServiceAccount that somebody deletes is made again, and pickers get tokens of the new one.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use crate::load::{Load, all_served};
use crate::support::{Stage, on_stage, selector};
use crate::upgrade::engines;

const ANNOTATION: &str = "lmetric.io/service-account";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn pickers_keep_their_rights_when_their_account_is_deleted_and_engines_do_not_mind_theirs()
-> anyhow::Result<()> {
    on_stage("picker-account", 2, async |stage| {
        stage.serve(&stage.pool("p", 1)).await?;
        let before = engines(stage, "p").await?;
        let pickers = stage.path("apps/v1", "deployments", "p-picker");
        let first = stage.cluster.get(&pickers).await?;
        ensure!(
            first["metadata"]["generation"] == 1,
            "the first pickers were rolled: {first:#}"
        );
        let load = Load::start(stage.envoy("p").await?, Duration::from_secs(1), 80);

        let mut uids = Vec::new();
        for account in ["p-picker", "p-engine"] {
            let path = stage.path("v1", "serviceaccounts", account);
            let old = stage.cluster.get(&path).await?["metadata"]["uid"].clone();
            stage.cluster.delete(&path).await?;
            let limit = Duration::from_secs(20);
            let new = stage
                .cluster
                .until("the account to be made again", limit, &path, |account| {
                    account["metadata"]["uid"] != old
                })
                .await?;
            uids.push(new["metadata"]["uid"].clone());
        }
        bound(stage, &uids[0]).await?;

        // it sees an engine that comes now
        let patch = json!({"spec": {"replicas": 2}});
        stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
        stage.ready("p", 2).await?;
        known(stage, 2).await?;
        all_served(&load.finish().await?)?;
        let after = engines(stage, "p").await?;
        ensure!(
            before.iter().all(|engine| after.contains(engine)),
            "an engine was replaced: {before:#?}, then {after:#?}"
        );
        Ok(())
    })
    .await
}

/// Waits until the only picker is one of that account.
async fn bound(stage: &Stage, account: &serde_json::Value) -> anyhow::Result<()> {
    let pods = stage.path("v1", "pods", "");
    stage
        .cluster
        .until_list(
            "the picker of the new account to be alone",
            Duration::from_mins(2),
            &pods,
            &selector("p", "picker"),
            |pods| pods.len() == 1 && pods[0]["metadata"]["annotations"][ANNOTATION] == *account,
        )
        .await?;
    Ok(())
}

/// Waits until the picker has so many engines.
async fn known(stage: &Stage, count: usize) -> anyhow::Result<()> {
    let picker = stage
        .cluster
        .ready_pods(
            &stage.namespace,
            &selector("p", "picker"),
            1,
            Duration::from_secs(30),
        )
        .await?
        .remove(0);
    let admin = lmetric_testkit::Admin::new(stage.cluster.pod(&picker, 9_090)?.to());
    let limit = Duration::from_secs(30);
    let every = Duration::from_millis(500);
    lmetric_testkit::poll("the picker to know its engines", limit, every, || async {
        let endpoints = admin.endpoints().await?;
        let ready = endpoints.values().filter(|endpoint| endpoint.ready).count();
        anyhow::ensure!(ready == count, "{ready} of {count}: {endpoints:?}");
        Ok(())
    })
    .await?;
    Ok(())
}
