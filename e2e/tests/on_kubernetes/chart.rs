//! The chart and the kustomize manifests on the real API server. `helm install` itself is behind every other test.

use anyhow::ensure;
use lmetric_testkit::cluster::{Cluster, Output};

use crate::support::{SYSTEM, installed};

/// Linted, rendered with the values of its `ci` folder and with values drawn by chance, and each result taken by the API server; values that
/// mean nothing are refused by name.
#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn what_the_chart_renders_is_accepted_under_any_values() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    installed(&cluster).await?;
    let Output { ok, out, err } = cluster
        .command("scripts/fuzz-chart.sh", &["--server", "1", "6"], "")
        .await?;
    ensure!(ok, "{out}{err}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn helm_test_passes_on_the_installed_release() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    installed(&cluster).await?;
    cluster
        .helm(&["test", "lmetric", "--namespace", SYSTEM, "--timeout", "60s"])
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn the_manifests_hold_what_the_chart_renders() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    installed(&cluster).await?;
    let applied = cluster
        .command(
            "kubectl",
            &[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--dry-run=server",
                "-f",
                "manifests/install.yaml",
            ],
            "",
        )
        .await?;
    ensure!(applied.ok, "{}", applied.err);
    Ok(())
}
