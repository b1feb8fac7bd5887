//! The committed CRD on a real API server.

use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::cluster::{Cluster, path};

use crate::support::is_true;

const CRD: &str = "inferencepools.lmetric.io";

/// Both ways that people apply it. The client's way keeps the whole object in an annotation, which has a limit.
#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn the_crd_applies_from_the_client_and_on_the_server() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    let file = format!("crds/{CRD}.yaml");
    for args in [
        &["apply", "--dry-run=server", "-f", &file][..],
        &[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "-f",
            &file,
        ],
    ] {
        let said = cluster.kubectl(args).await?;
        ensure!(said.contains(CRD), "{args:?}: {said}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn kubectl_explains_every_field_of_the_spec() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    established(&cluster).await?;
    let text = cluster
        .kubectl(&[
            "explain",
            "--recursive=false",
            "inferencepools.spec",
            "--api-version=lmetric.io/v1alpha1",
        ])
        .await?;
    let fields = text.split("FIELDS:").nth(1).unwrap_or_default();
    let mut lines = fields.lines().filter(|line| !line.trim().is_empty()).peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if line.starts_with("  ") && !line.starts_with("   ") {
            count += 1;
            let described = lines
                .peek()
                .is_some_and(|next| next.starts_with("   ") && !next.contains("<no description>"));
            ensure!(described, "no description: {line}");
        }
    }
    ensure!(count > 10, "{count} fields in {text}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs the cluster: make e2e-core"]
async fn the_short_name_and_the_category_find_pools() -> anyhow::Result<()> {
    let cluster = Cluster::enter().await?;
    established(&cluster).await?;
    for name in ["lmpool", "lmetric", "inferencepools.lmetric.io"] {
        cluster.kubectl(&["get", name, "-A"]).await?;
    }
    Ok(())
}

/// Applies the CRD as the tests' installation does, and waits until the API server serves it.
pub(crate) async fn established(cluster: &Cluster) -> anyhow::Result<()> {
    crate::support::installed(cluster).await?;
    let definition = path("apiextensions.k8s.io/v1", "customresourcedefinitions", "", CRD);
    cluster
        .until(
            "the CRD to be established",
            Duration::from_secs(20),
            &definition,
            |crd| {
                let mut crd = crd.clone();
                crd["status"]["observedGeneration"] = crd["metadata"]["generation"].clone();
                is_true(&crd, "Established")
            },
        )
        .await?;
    Ok(())
}
