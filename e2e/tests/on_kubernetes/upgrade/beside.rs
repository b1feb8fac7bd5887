//! A release that serves one namespace beside one that serves all others.

use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::cluster::{path, writes_between};
use serde_json::json;

use super::{TREE, anew, engines, on_changing_releases, release, rolled_to};
use crate::support::{SYSTEM, Stage, image_values, next_image_values};

/// The namespace that the second release serves.
const THEIRS: &str = "beside-theirs";
const SECOND: &str = "second";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_release_of_one_namespace_takes_it_over_and_neither_touches_the_others_pools() -> anyhow::Result<()>
{
    on_changing_releases("beside", async |stage| {
        let (cluster, images) = (&stage.cluster, stage.cluster.images());
        anew(cluster, TREE).await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": THEIRS}});
        cluster
            .create(&path("v1", "namespaces", "", ""), &namespace)
            .await?;
        let theirs = Stage {
            cluster: cluster.clone(),
            namespace: THEIRS.to_owned(),
        };
        let result = side_by_side(stage, &theirs).await;
        if result.is_err() {
            theirs.describe().await;
        }
        cluster.delete(&path("v1", "namespaces", "", THEIRS)).await?;
        result?;
        ensure!(images.lmetric != images.lmetric_next, "two tags are needed");
        Ok(())
    })
    .await
}

async fn side_by_side(ours: &Stage, theirs: &Stage) -> anyhow::Result<()> {
    let (cluster, images) = (&ours.cluster, ours.cluster.images());
    ours.serve(&ours.pool("p", 1)).await?;
    theirs.serve(&theirs.pool("p", 1)).await?;
    let before = engines(theirs, "p").await?;

    let mut values = image_values(images);
    values.push(format!("excludeNamespaces={{{THEIRS}}}"));
    release(cluster, &["upgrade"], TREE, "lmetric", SYSTEM, &values).await?;
    let mut values = next_image_values(images);
    values.extend(
        ["crds.install=false", "rbac.pickerRole=false", "replicas=1"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("watchNamespace={THEIRS}")]),
    );
    release(cluster, &["install"], TREE, SECOND, SECOND, &values).await?;

    rolled_to(theirs, "p", "picker", &images.lmetric_next).await?;
    for stage in [ours, theirs] {
        stage.ready("p", 1).await?;
    }
    rolled_to(ours, "p", "picker", &images.lmetric).await?;
    ensure!(
        engines(theirs, "p").await? == before,
        "the engines were rolled when the pool changed hands"
    );

    // each follows its own pool, and then nobody writes: two that fight would not stop
    for (stage, image) in [(ours, &images.lmetric), (theirs, &images.lmetric_next)] {
        let patch = json!({"spec": {"disruption": {"maxUnavailable": 2}}});
        cluster.merge(&stage.pool_path("p"), &patch).await?;
        let budget = stage.path("policy/v1", "poddisruptionbudgets", "p-engine");
        let limit = Duration::from_secs(20);
        cluster
            .until("the pool to be followed", limit, &budget, |budget| {
                budget["spec"]["maxUnavailable"] == 2
            })
            .await?;
        rolled_to(stage, "p", "picker", image).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = cluster.writes().await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let mut more = writes_between(&before, &cluster.writes().await?, &[]);
    more.retain(|what, _| what.starts_with("APPLY "));
    ensure!(more.is_empty(), "applied while nothing changed: {more:?}");

    let account = format!("system:serviceaccount:{SECOND}:{SECOND}-lmetric-operator");
    for (namespace, may) in [
        (THEIRS, true),
        (ours.namespace.as_str(), false),
        ("kube-system", false),
    ] {
        let asked = [
            "auth",
            "can-i",
            "patch",
            "deployments.apps",
            "--as",
            &account,
            "-n",
            namespace,
        ];
        let answer = cluster.command("kubectl", &asked, "").await?;
        ensure!(answer.ok == may, "{SECOND} in {namespace}: {}", answer.out);
    }
    Ok(())
}
