//! What the operator is told on its command line. Every flag has an environment variable of the same meaning.

use std::{fmt, net::SocketAddr, num::NonZeroU16};

use clap::{Args, Parser, Subcommand};
use kube::{Api, runtime::watcher};

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
    /// Namespaces whose pools another operator serves, separated by commas. This one sees nothing in them.
    #[arg(long, env = "LMETRIC_EXCLUDE_NAMESPACES", value_delimiter = ',', value_parser = namespace_name, conflicts_with = "namespace")]
    pub exclude_namespaces: Vec<String>,
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
        if !self.namespace.is_empty() {
            Scope::Namespace(self.namespace.clone())
        } else if self.exclude_namespaces.is_empty() {
            Scope::Cluster
        } else {
            Scope::Except(self.exclude_namespaces.clone())
        }
    }
}

/// A name that a namespace can have: it becomes part of a selector.
fn namespace_name(text: &str) -> Result<String, String> {
    let letters = text
        .bytes()
        .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-');
    if letters && (1..=63).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err("no namespace can have that name; write names such as team-a, separated by commas".to_owned())
    }
}

/// Where pools are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces.
    Cluster,
    /// In all namespaces but these.
    Except(Vec<String>),
    /// In this one.
    Namespace(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => to.write_str("all namespaces"),
            Self::Except(excluded) => write!(to, "all namespaces but {}", excluded.join(", ")),
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
            Self::Cluster | Self::Except(_) => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }

    /// What a watch of the scope asks the API server for: what is excluded does not even reach this process.
    pub fn watching(&self) -> watcher::Config {
        let config = watcher::Config::default();
        match self {
            Self::Cluster | Self::Namespace(_) => config,
            Self::Except(excluded) => {
                let selectors: Vec<_> = excluded
                    .iter()
                    .map(|namespace| format!("metadata.namespace!={namespace}"))
                    .collect();
                config.fields(&selectors.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(flags: &[&str]) -> Result<Scope, String> {
        let line = ["lmetric-operator", "run", "--picker-image=lmetric:1"];
        let cli = Cli::try_parse_from(line.iter().chain(flags)).map_err(|error| error.to_string())?;
        let Command::Run(args) = cli.command;
        Ok(args.scope())
    }

    #[test]
    fn what_another_operator_serves_is_left_out_by_the_api_server() {
        let except = scope(&["--exclude-namespaces=team-a,team-b"]).unwrap();
        assert_eq!(
            except.watching().field_selector.as_deref(),
            Some("metadata.namespace!=team-a,metadata.namespace!=team-b")
        );
        assert_eq!(scope(&[]).unwrap().watching().field_selector, None);
        let both = scope(&["--namespace=a", "--exclude-namespaces=b"]).unwrap_err();
        assert!(both.contains("cannot be used with"), "{both}");
        let odd = scope(&["--exclude-namespaces=a=b"]).unwrap_err();
        assert!(odd.contains("no namespace can have that name"), "{odd}");
    }
}
