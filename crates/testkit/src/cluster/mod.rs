//! A test's view of the cluster of `e2e/cluster`, from inside its namespaces: objects, pods and services, kubectl and helm, faults.
//!
//! `make e2e-core` starts the cluster and runs the test program in it, so that every pod and every ClusterIP is a plain address.

mod command;
mod fault;
mod images;
mod objects;
mod operator;
mod pools;
mod reach;
mod requests;

use std::path::{Path, PathBuf};

use anyhow::Context;
use kube::Client as KubeClient;
use kube::config::{KubeConfigOptions, Kubeconfig};

pub use command::Output;
pub use fault::RunningContainer;
pub use images::Images;
pub use objects::path;
pub use operator::{SYSTEM, image_values, next_image_values};
pub use pools::{MODEL, condition, is_true, pool_path, selector, serves_with, small_pool};
pub use reach::PodState;
pub use requests::{Writes, writes_between};

/// The running cluster.
#[derive(Clone)]
pub struct Cluster {
    api: KubeClient,
    state: PathBuf,
    root: PathBuf,
    images: Images,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// The cluster that this process runs in: `LMETRIC_CLUSTER` is the folder of its state.
    pub async fn enter() -> anyhow::Result<Self> {
        let state = std::env::var_os("LMETRIC_CLUSTER")
            .map(PathBuf::from)
            .context("LMETRIC_CLUSTER is not set: run these tests with `make e2e-core`")?;
        let kubeconfig = Kubeconfig::read_from(state.join("admin.kubeconfig"))
            .context("no kubeconfig; does the cluster run? `make e2e-core` starts it")?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self {
            api: KubeClient::try_from(config)?,
            images: Images::read(&state.join("images.env"))?,
            root: repository(),
            state,
        })
    }

    /// A client with every right.
    pub fn api(&self) -> &KubeClient {
        &self.api
    }

    /// Images that the nodes hold.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// Folder of its state: logs, kubeconfigs.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The repository's root.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// `LMETRIC_ROOT`, else where this was compiled.
fn repository() -> PathBuf {
    std::env::var_os("LMETRIC_ROOT").map_or_else(|| crate::process::package().join("../.."), PathBuf::from)
}
