//! From the chart that was released to the chart of this tree, under pools that serve.

use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::cluster::path;
use serde_json::{Value, json};

use super::{TREE, anew, engines, on_changing_releases, release, rolled_to};
use crate::load::{Load, all_served};
use crate::support::{SYSTEM, is_true, next_image_values};

/// The first release, as `helm package` made it (`e2e/testdata/charts`).
const RELEASED: &str = "e2e/testdata/charts/lmetric-0.1.0.tgz";
const CRD: &str = "inferencepools.lmetric.io";
/// Tokens of a stream of 10 s at the pools' speed.
const TOKENS: u32 = 170;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn an_upgrade_of_the_chart_rolls_pickers_and_envoys_but_no_engine_and_fails_no_request()
-> anyhow::Result<()> {
    on_changing_releases("next-chart", async |stage| {
        let (cluster, images) = (&stage.cluster, stage.cluster.images());
        anew(cluster, RELEASED).await?;
        let definition = path("apiextensions.k8s.io/v1", "customresourcedefinitions", "", CRD);
        ensure!(
            chart_of(&cluster.get(&definition).await?) == "lmetric-0.1.0",
            "not the released chart"
        );
        let mut two = stage.pool("p", 2);
        two["spec"]["picker"]["replicas"] = json!(2);
        stage.serve(&two).await?;
        stage.serve(&stage.pool("q", 1)).await?;
        let before = (engines(stage, "p").await?, engines(stage, "q").await?);
        let every = Duration::from_secs(1);
        let loads = [
            Load::start(stage.envoy("p").await?, every, TOKENS),
            Load::start(stage.envoy("q").await?, every, TOKENS),
        ];
        tokio::time::sleep(Duration::from_secs(5)).await;

        release(
            cluster,
            &["upgrade"],
            TREE,
            "lmetric",
            SYSTEM,
            &next_image_values(images),
        )
        .await?;
        for pool in ["p", "q"] {
            rolled_to(stage, pool, "picker", &images.lmetric_next).await?;
            rolled_to(stage, pool, "envoy", &images.envoy_next).await?;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        for load in loads {
            all_served(&load.finish().await?)?;
        }

        let after = (engines(stage, "p").await?, engines(stage, "q").await?);
        ensure!(
            before == after,
            "engines were touched: {before:#?}, then {after:#?}"
        );
        for pool in ["p", "q"] {
            let pool = cluster.get(&stage.pool_path(pool)).await?;
            ensure!(is_true(&pool, "Ready"), "{pool:#}");
            let status = &pool["status"];
            ensure!(
                status["toolImage"] == images.lmetric && status["templateRevision"] == 1,
                "{status:#}"
            );
        }
        let chart: Value = serde_yaml::from_str(&std::fs::read_to_string(
            cluster.root().join(TREE).join("Chart.yaml"),
        )?)?;
        let expected = format!("lmetric-{}", chart["version"].as_str().unwrap_or_default());
        let installed = cluster.get(&definition).await?;
        ensure!(
            chart_of(&installed) == expected,
            "the definition is not of {expected}"
        );
        let file = format!("crds/{CRD}.yaml");
        let diff = cluster
            .command(
                "kubectl",
                &["diff", "--server-side", "--force-conflicts", "-f", &file],
                "",
            )
            .await?;
        ensure!(
            diff.ok,
            "the definition is not this tree's: {}{}",
            diff.out,
            diff.err
        );

        // a change of its own moves a pool to what the new release brought
        let patch = json!({"spec": {"engine": {"maxNumSeqs": 64}}});
        cluster.merge(&stage.pool_path("q"), &patch).await?;
        let what = "the engine to be made anew";
        let changed = cluster
            .until(what, Duration::from_secs(90), &stage.pool_path("q"), |pool| {
                is_true(pool, "Ready")
                    && pool["status"]["toolImage"] == images.lmetric_next
                    && pool["status"]["updatedReplicas"] == 1
            })
            .await?;
        ensure!(
            changed["status"]["templateRevision"] == 1,
            "{:#}",
            changed["status"]
        );
        ensure!(
            engines(stage, "p").await? == before.0,
            "the change of one pool touched another"
        );
        Ok(())
    })
    .await
}

fn chart_of(object: &Value) -> &str {
    object["metadata"]["labels"]["helm.sh/chart"]
        .as_str()
        .unwrap_or_default()
}
