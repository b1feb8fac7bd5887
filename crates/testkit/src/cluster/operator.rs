//! The installed operator.

use anyhow::Context;

use super::{Cluster, Images, path};

/// Namespace of the operator.
pub const SYSTEM: &str = "lmetric-system";

impl Cluster {
    /// Installs the chart with the images of this build, or upgrades it, and waits until its operators are ready.
    pub async fn install_chart(&self) -> anyhow::Result<()> {
        let mut args = vec![
            "upgrade",
            "--install",
            "lmetric",
            "charts/lmetric",
            "--namespace",
            SYSTEM,
        ];
        args.extend(["--create-namespace", "--wait", "--timeout", "90s"]);
        let values = image_values(self.images());
        args.extend(values.iter().flat_map(|value| ["--set", value.as_str()]));
        self.helm(&args).await?;
        Ok(())
    }

    /// Name of the operator's pod whose identity the Lease holds.
    pub async fn leader(&self) -> anyhow::Result<String> {
        let leases = self
            .list(&path("coordination.k8s.io/v1", "leases", SYSTEM, ""), "")
            .await?;
        let holders: Vec<_> = leases
            .iter()
            .filter_map(|lease| lease["spec"]["holderIdentity"].as_str())
            .collect();
        let pods = self.pods(SYSTEM, "").await?;
        pods.into_iter()
            .map(|pod| pod.name)
            .find(|name| holders.iter().any(|holder| holder.contains(name.as_str())))
            .with_context(|| format!("no operator holds a Lease: {holders:?}"))
    }
}

/// Chart values that name this build's images.
pub fn image_values(images: &Images) -> Vec<String> {
    values_of(&images.lmetric, &images.envoy)
}

/// The same under the tags of a next release.
pub fn next_image_values(images: &Images) -> Vec<String> {
    values_of(&images.lmetric_next, &images.envoy_next)
}

fn values_of(lmetric: &str, envoy: &str) -> Vec<String> {
    let (repository, tag) = Images::split(lmetric);
    let (envoy, envoy_tag) = Images::split(envoy);
    vec![
        format!("image.repository={repository}"),
        format!("image.tag={tag}"),
        format!("envoy.image.repository={envoy}"),
        format!("envoy.image.tag={envoy_tag}"),
    ]
}
