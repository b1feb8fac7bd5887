//! The examples, as the API server takes them with the definitions of those projects.

use anyhow::ensure;
use lmetric_testkit::cluster::Cluster;

use crate::support::installed;

#[tokio::test]
#[ignore = "needs the cluster: make e2e"]
async fn the_examples_for_gateways_are_accepted() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    installed(&cluster).await?;
    let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gateways"}}"#;
    cluster.apply(namespace, &["--server-side"]).await?;
    for (file, kinds) in [
        ("envoy-gateway.yaml", &["inferencepool.lmetric.io"][..]),
        ("inference-gateway.yaml", &["inferencepool.lmetric.io"]),
        (
            "gateways/envoy-gateway.yaml",
            &["gatewayclass", "gateway.gateway", "clienttrafficpolicy"],
        ),
        ("gateways/inference-gateway.yaml", &["gateway.gateway"]),
    ] {
        let path = format!("manifests/examples/{file}");
        let said = cluster
            .kubectl(&[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--dry-run=server",
                "-f",
                &path,
            ])
            .await?;
        for kind in kinds {
            ensure!(said.contains(kind), "{file}: no {kind} in {said}");
        }
    }
    Ok(())
}
