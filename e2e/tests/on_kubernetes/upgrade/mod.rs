//! Releases of the chart come, change and go under pools that serve. Each test needs the cluster to itself, because there is one
//! definition of pools and one role of pickers for all releases.

mod beside;
mod next_chart;
mod releases;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use lmetric_testkit::cluster::{Cluster, path};
use serde_json::Value;

use crate::support::{SYSTEM, Stage, image_values, on_stage_alone, selector};

/// The chart of this tree.
const TREE: &str = "charts/lmetric";
/// What a cluster has once, and helm keeps.
const KEPT: [&str; 2] = ["crd/inferencepools.lmetric.io", "clusterrole/lmetric-picker"];

/// Runs a test that changes releases; leaves the cluster as other tests expect it.
async fn on_changing_releases(
    namespace: &str,
    body: impl AsyncFnOnce(&Stage) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    on_stage_alone(namespace, async |stage| {
        let result = body(stage).await;
        if result.is_err() {
            stage.describe().await;
        }
        let restored = restore(&stage.cluster).await;
        result?;
        restored
    })
    .await
}

/// One release, of this tree and build.
async fn restore(cluster: &Cluster) -> anyhow::Result<()> {
    for (name, namespace) in releases(cluster).await? {
        if (name.as_str(), namespace.as_str()) != ("lmetric", SYSTEM) {
            uninstall(cluster, &name, &namespace).await?;
        }
    }
    // what a test annotated by hand is kubectl's in the eyes of server-side apply
    let verb = ["upgrade", "--install", "--take-ownership", "--force-conflicts"];
    release(
        cluster,
        &verb,
        TREE,
        "lmetric",
        SYSTEM,
        &image_values(cluster.images()),
    )
    .await
}

/// A cluster without any release or pool, then the chart in it.
async fn anew(cluster: &Cluster, chart: &str) -> anyhow::Result<()> {
    for (name, namespace) in releases(cluster).await? {
        uninstall(cluster, &name, &namespace).await?;
    }
    cluster
        .kubectl(&[&["delete", "--ignore-not-found", "--timeout=60s"][..], &KEPT].concat())
        .await?;
    release(
        cluster,
        &["install"],
        chart,
        "lmetric",
        SYSTEM,
        &image_values(cluster.images()),
    )
    .await
}

/// Name and namespace of every release of the chart.
async fn releases(cluster: &Cluster) -> anyhow::Result<Vec<(String, String)>> {
    let list: Vec<BTreeMap<String, Value>> = serde_json::from_str(
        &cluster
            .helm(&["list", "--all-namespaces", "--output", "json"])
            .await?,
    )?;
    let text = |release: &BTreeMap<String, Value>, key: &str| {
        let value = release.get(key).and_then(Value::as_str);
        value
            .map(str::to_owned)
            .with_context(|| format!("a release without {key}: {release:?}"))
    };
    let mut found = Vec::new();
    for release in &list {
        if text(release, "chart")?.starts_with("lmetric-") {
            found.push((text(release, "name")?, text(release, "namespace")?));
        }
    }
    Ok(found)
}

/// `helm VERB NAME CHART …`, and waits until its operators are ready.
async fn release(
    cluster: &Cluster,
    verb: &[&str],
    chart: &str,
    name: &str,
    namespace: &str,
    values: &[String],
) -> anyhow::Result<()> {
    let mut args = verb.to_vec();
    args.extend([
        name,
        chart,
        "--namespace",
        namespace,
        "--wait",
        "--timeout",
        "120s",
    ]);
    if verb[0] == "install" || verb.contains(&"--install") {
        args.push("--create-namespace");
    }
    args.extend(values.iter().flat_map(|value| ["--set", value.as_str()]));
    cluster.helm(&args).await?;
    Ok(())
}

/// Waits until nothing of it runs any more.
async fn uninstall(cluster: &Cluster, name: &str, namespace: &str) -> anyhow::Result<()> {
    cluster
        .helm(&[
            "uninstall",
            name,
            "--namespace",
            namespace,
            "--wait",
            "--timeout",
            "60s",
        ])
        .await?;
    let of_release = format!("app.kubernetes.io/instance={name},app.kubernetes.io/component=operator");
    cluster
        .until_list(
            "the operators to be gone",
            Duration::from_mins(1),
            &path("v1", "pods", namespace, ""),
            &of_release,
            <[Value]>::is_empty,
        )
        .await?;
    Ok(())
}

/// Which ReplicaSets and pods a pool's engines are, with the containers that run in them: equal while nothing was replaced or restarted.
pub(crate) async fn engines(stage: &Stage, pool: &str) -> anyhow::Result<Vec<String>> {
    let selector = selector(pool, "engine");
    let mut found = Vec::new();
    for set in stage
        .cluster
        .list(&stage.path("apps/v1", "replicasets", ""), &selector)
        .await?
    {
        found.push(format!("ReplicaSet {}", set["metadata"]["name"]));
    }
    for pod in stage
        .cluster
        .list(&stage.path("v1", "pods", ""), &selector)
        .await?
    {
        let mut containers: Vec<_> = pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|status| format!("{} restarted {}", status["containerID"], status["restartCount"]))
            .collect();
        containers.sort();
        found.push(format!("Pod {} {containers:?}", pod["metadata"]["name"]));
    }
    found.sort();
    Ok(found)
}

/// Waits until all of a Deployment's pods run this image, and those before are gone.
async fn rolled_to(stage: &Stage, pool: &str, component: &str, image: &str) -> anyhow::Result<()> {
    let count = stage
        .cluster
        .get(&stage.path("apps/v1", "deployments", &format!("{pool}-{component}")))
        .await?["spec"]["replicas"]
        .as_u64()
        .context("replicas")? as usize;
    stage
        .cluster
        .until_list(
            &format!("{component}s of {pool} to run {image}"),
            Duration::from_mins(2),
            &stage.path("v1", "pods", ""),
            &selector(pool, component),
            |pods| {
                pods.len() == count
                    && pods
                        .iter()
                        .all(|pod| pod["spec"]["containers"][0]["image"] == image)
            },
        )
        .await?;
    Ok(())
}
