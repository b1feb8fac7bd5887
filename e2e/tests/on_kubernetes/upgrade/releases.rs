//! Uninstalled and installed again: pools stay, serve, and are taken up.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::{KEPT, TREE, anew, engines, on_changing_releases, release, uninstall};
use crate::load::{Load, all_served};
use crate::support::{SYSTEM, Stage, image_values, selector};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn pools_serve_without_a_release_and_are_taken_up_by_the_next_of_any_name() -> anyhow::Result<()> {
    on_changing_releases("releases", async |stage| {
        let cluster = &stage.cluster;
        let values = image_values(cluster.images());
        anew(cluster, TREE).await?;
        stage.serve(&stage.pool("p", 1)).await?;
        let before = engines(stage, "p").await?;
        let load = Load::start(stage.envoy("p").await?, Duration::from_secs(1), 80);

        uninstall(cluster, "lmetric", SYSTEM).await?;
        cluster.get(&stage.pool_path("p")).await?;
        cluster.kubectl(&[&["get"][..], &KEPT].concat()).await?;
        // a picker that starts now needs its rights
        cluster
            .kubectl(&[
                "rollout",
                "restart",
                "deployment/p-picker",
                "-n",
                &stage.namespace,
            ])
            .await?;
        cluster
            .kubectl(&[
                "rollout",
                "status",
                "deployment/p-picker",
                "-n",
                &stage.namespace,
                "--timeout=90s",
            ])
            .await?;

        release(cluster, &["install"], TREE, "lmetric", SYSTEM, &values).await?;
        tended(stage, 2).await?;
        uninstall(cluster, "lmetric", SYSTEM).await?;

        let (name, system) = ("serving", "serving-system");
        let refused = release(cluster, &["install"], TREE, name, system, &values).await;
        let words = refused
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default();
        ensure!(
            words.contains("invalid ownership metadata"),
            "helm should refuse: {words}"
        );
        // README.md of the chart
        let owner = [
            format!("meta.helm.sh/release-name={name}"),
            format!("meta.helm.sh/release-namespace={system}"),
        ];
        let owner = owner.each_ref().map(String::as_str);
        cluster
            .kubectl(&[&["annotate", "--overwrite"][..], &KEPT, &owner].concat())
            .await?;
        release(cluster, &["install"], TREE, name, system, &values).await?;
        tended(stage, 1).await?;

        all_served(&load.finish().await?)?;
        let after = engines(stage, "p").await?;
        ensure!(
            replica_sets(&after) == replica_sets(&before),
            "engines were rolled: {before:#?}, then {after:#?}"
        );
        Ok(())
    })
    .await
}

fn replica_sets(engines: &[String]) -> Vec<&String> {
    engines
        .iter()
        .filter(|engine| engine.starts_with("ReplicaSet"))
        .collect()
}

/// An operator follows a change of the pool.
async fn tended(stage: &Stage, replicas: u64) -> anyhow::Result<()> {
    let patch = json!({"spec": {"replicas": replicas}});
    stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
    stage.ready("p", replicas).await?;
    let (selector, limit) = (selector("p", "engine"), Duration::from_mins(1));
    stage
        .cluster
        .ready_pods(&stage.namespace, &selector, replicas as usize, limit)
        .await?;
    Ok(())
}
