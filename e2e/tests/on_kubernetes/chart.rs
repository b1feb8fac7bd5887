//! The chart and the kustomize manifests on the real API server. `helm install` itself is behind every other test.

use anyhow::ensure;
use lmetric_testkit::cluster::{Cluster, Output, path};
use serde_json::json;

use crate::support::{SYSTEM, installed};

const CHART: &str = "charts/lmetric";

#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn the_chart_passes_helm_lint() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    let said = cluster.helm(&["lint", "--strict", CHART]).await?;
    ensure!(said.contains("0 chart(s) failed"), "{said}");
    Ok(())
}

/// Rendered with each set of values, everything is an object that the API server would take.
#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn what_the_chart_renders_is_accepted_under_any_values() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    installed(&cluster).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rendered"}});
    cluster
        .create(&path("v1", "namespaces", "", ""), &namespace)
        .await?;
    for values in VALUES {
        let mut args = vec!["template", "other", CHART, "--namespace", "rendered"];
        args.extend(values.iter().flat_map(|value| ["--set-json", *value]));
        let rendered = cluster.helm(&args).await?;
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "-n",
            "rendered",
            "-f",
            "-",
        ];
        let applied = cluster.command("kubectl", &apply, &rendered).await?;
        ensure!(applied.ok, "{values:?}: {}", applied.err);
    }
    cluster.delete(&path("v1", "namespaces", "", "rendered")).await
}

const VALUES: [&[&str]; 8] = [
    &[],
    &["replicas=1", "log.filter=\"debug\"", "extraArgs=[\"--help\"]"],
    &["watchNamespace=\"rendered\"", "rbac.clusterReads=false"],
    &[
        "watchNamespace=\"rendered\"",
        "rbac.pickerRole=false",
        "crds.install=false",
    ],
    &[
        "rbac.create=false",
        "serviceAccount={\"create\": false, \"name\": \"default\"}",
        "networkPolicy.enabled=false",
        "podDisruptionBudget.enabled=false",
        "crds.keep=false",
    ],
    &[
        "fullnameOverride=\"somebodys-own-name\"",
        "commonLabels={\"team\": \"ml\"}",
        "podLabels={\"a\": \"b\"}",
        "podAnnotations={\"c\": \"d\"}",
        "nodeSelector={\"kubernetes.io/os\": \"linux\"}",
        "tolerations=[{\"operator\": \"Exists\"}]",
        "topologySpreadConstraints=[]",
        "image.digest=\"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"",
        "imagePullSecrets=[{\"name\": \"pull\"}]",
    ],
    &[
        "networkPolicy.monitoringFrom=[{\"namespaceSelector\": {\"matchLabels\": {\"a\": \"b\"}}}]",
        "networkPolicy.extraEgress=[{\"ports\": [{\"port\": 443}]}]",
        "monitoring.dashboards.enabled=true",
        "service.annotations={\"prometheus.io/scrape\": \"true\"}",
    ],
    &[
        "extraEnv=[{\"name\": \"A\", \"value\": \"b\"}]",
        "resources={\"requests\": {\"cpu\": \"1\"}, \"limits\": {\"memory\": \"1Gi\"}}",
        "podDisruptionBudget.maxUnavailable=\"50%\"",
        "extraObjects=[{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"more\"}}]",
    ],
];

#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn values_that_mean_nothing_are_refused_by_name() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    for (value, named) in [
        ("replicaz=2", "replicaz"),
        ("image.tagg=1", "tagg"),
        ("replicas=many", "replicas"),
    ] {
        let Output { ok, out, err } = cluster
            .command("helm", &["template", "x", CHART, "--set", value], "")
            .await?;
        ensure!(!ok && err.contains(named), "{value}: {out}{err}");
    }
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
