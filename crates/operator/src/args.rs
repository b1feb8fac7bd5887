//! What the operator is told on its command line. Every flag has an environment variable of the same meaning.

use std::{fmt, net::SocketAddr, num::NonZeroU16};

use clap::{Args, Parser, Subcommand};
use kube::Api;

use crate::validated::{Cluster, Images};

/// The operator of lmetric's InferencePools.
#[derive(Debug, Parser)]
#[command(name = "lmetric-operator", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch pools and run what they ask for.
    Run(Box<RunArgs>),
}

/// Flags of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Only the pools of this namespace; all namespaces if empty.
    #[arg(long, env = "LMETRIC_NAMESPACE", default_value = "")]
    pub namespace: String,
    /// Namespace that the operator runs in; its Lease is there, and pickers admit it.
    #[arg(long, env = "POD_NAMESPACE", default_value = "lmetric-system")]
    pub operator_namespace: String,
    /// Name of this pod, part of its identity as a leader.
    #[arg(long, env = "POD_NAME", default_value = "lmetric-operator")]
    pub pod_name: String,
    /// Name of the Lease by which one of several operators leads.
    #[arg(long, env = "LMETRIC_LEASE", default_value = "lmetric-operator")]
    pub lease: String,
    /// Image of pickers, where a pool names none.
    #[arg(long, env = "LMETRIC_PICKER_IMAGE")]
    pub picker_image: String,
    /// Image whose /lmetric-drain is copied into engine pods; the picker's image if empty.
    #[arg(long, env = "LMETRIC_TOOL_IMAGE", default_value = "")]
    pub tool_image: String,
    /// Image of the standalone Envoy, where a pool names none.
    #[arg(
        long,
        env = "LMETRIC_ENVOY_IMAGE",
        default_value = "envoyproxy/envoy:distroless-v1.40.0"
    )]
    pub envoy_image: String,
    /// When these images are pulled: Always, IfNotPresent or Never.
    #[arg(long, env = "LMETRIC_IMAGE_PULL_POLICY", default_value = "IfNotPresent", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub image_pull_policy: String,
    /// ClusterRole that pickers are bound to.
    #[arg(long, env = "LMETRIC_PICKER_ROLE", default_value = "lmetric-picker")]
    pub picker_role: String,
    /// DNS suffix of the cluster.
    #[arg(long, env = "LMETRIC_CLUSTER_DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// Where /metrics, /healthz and /readyz are.
    #[arg(long, env = "LMETRIC_ADMIN", default_value = "0.0.0.0:9090")]
    pub admin: SocketAddr,
    /// Pools that are worked on at the same time.
    #[arg(long, env = "LMETRIC_CONCURRENCY", default_value = "16")]
    pub concurrency: NonZeroU16,
    /// Log filter, such as info or info,lmetric_operator=debug.
    #[arg(long, env = "LMETRIC_LOG", default_value = "info")]
    pub log: String,
}

impl RunArgs {
    /// Images for pools that name none.
    pub fn images(&self) -> Images {
        Images {
            picker: self.picker_image.clone(),
            envoy: self.envoy_image.clone(),
            pull_policy: self.image_pull_policy.clone(),
        }
    }

    /// Image of the drain tool.
    pub fn tool_image(&self) -> String {
        if self.tool_image.is_empty() {
            self.picker_image.clone()
        } else {
            self.tool_image.clone()
        }
    }

    /// The operator's place in the cluster.
    pub fn cluster(&self) -> Cluster {
        Cluster {
            operator_namespace: self.operator_namespace.clone(),
            picker_role: self.picker_role.clone(),
            domain: self.cluster_domain.clone(),
        }
    }

    /// Where pools are looked for.
    pub fn scope(&self) -> Scope {
        if self.namespace.is_empty() {
            Scope::Cluster
        } else {
            Scope::Namespace(self.namespace.clone())
        }
    }
}

/// Where pools are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces.
    Cluster,
    /// In this one.
    Namespace(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => to.write_str("all namespaces"),
            Self::Namespace(namespace) => to.write_str(namespace),
        }
    }
}

impl Scope {
    /// All objects of a kind in the scope.
    pub fn api<K>(&self, client: &kube::Client) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        match self {
            Self::Cluster => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }
}
