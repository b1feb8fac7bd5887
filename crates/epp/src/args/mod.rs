//! The command line: our own flags, and those of the Inference Extension's picker, so that this one can stand in for it.

mod gie;
mod over;

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use clap::{ArgAction, Parser};
use lmetric_telemetry::command_line;

pub use gie::{Ignored, duration, translate};

/// What its ServiceAccount must be allowed; a test on a real cluster runs it with this and no more.
const RIGHTS: &str = "Rights on Kubernetes: get, list and watch of pods; with --config-map, of configmaps; with \
--pool-name, of inferencepools in the pool's API group; all in the pool's namespace. It writes nothing.

Admin port: / the fleet live, for a browser on this machine (see `page` of the configuration); /metrics /healthz /readyz /drain/<pod UID> and, as JSON, /debug/endpoints /debug/decisions /debug/models \
(each model's tokenizer) /debug/config (whether what was written last is in force).";

/// The endpoint picker: tells an Envoy, over ext-proc, which engine should serve each request.
///
/// Its configuration is a file (--config), a ConfigMap (--config-map), or made of flags alone (--pool-name). Flags of the
/// Inference Extension's own picker that mean nothing here are accepted, with one log line each.
#[derive(Clone, Debug, Parser)]
#[command(name = "lmetric-epp", version, after_help = RIGHTS)]
pub struct Args {
    /// Configuration, YAML.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration and all files that it names, bind nothing, and exit with 0 or 2.
    #[arg(long)]
    pub check: bool,
    /// Do what the Inference Extension's conformance suite asks of a picker: requests choose their engine by a header. Never
    /// with real clients.
    #[arg(long)]
    pub conformance: bool,
    /// Log filter instead of the configuration's.
    #[arg(long, value_name = "FILTER", env = "LMETRIC_LOG")]
    pub log: Option<String>,
    /// Where pods and configuration are found.
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
    /// Flags that stand above the configuration.
    #[command(flatten)]
    pub over: Overrides,
}

/// Where pods and configuration are found on Kubernetes.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesArgs {
    /// ConfigMap whose key picker.yaml is the configuration; read and watched through the API.
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub config_map: Option<String>,
    /// Namespace of the ConfigMap and the pods [default: the pod's own].
    #[arg(long, value_name = "NAME", env = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Name of the lmetric.io InferencePool, for messages and as the model's name where the configuration has none.
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// GIE InferencePool that names the pods and their ports.
    #[arg(long, value_name = "NAME", conflicts_with = "endpoint_selector")]
    pub pool_name: Option<String>,
    /// Its namespace [default: --namespace].
    #[arg(long, value_name = "NAME", requires = "pool_name")]
    pub pool_namespace: Option<String>,
    /// Its API group [default: inference.networking.k8s.io].
    #[arg(long, value_name = "GROUP", requires = "pool_name")]
    pub pool_group: Option<String>,
    /// Labels of the pods, a=b,c=d, instead of a pool.
    #[arg(long, value_name = "LABELS", requires = "endpoint_target_ports")]
    pub endpoint_selector: Option<String>,
    /// Ports of these pods.
    #[arg(
        long,
        value_name = "PORTS",
        value_delimiter = ',',
        requires = "endpoint_selector"
    )]
    pub endpoint_target_ports: Vec<u16>,
    /// API server and credentials [default: the pod's own].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of this pod, for logs.
    #[arg(long, value_name = "NAME", env = "POD_NAME", hide = true)]
    pub pod_name: Option<String>,
}

/// What flags say stands above what the configuration says, also when that changes.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Instead of the configuration's")]
pub struct Overrides {
    /// Port of ext-proc.
    #[arg(long, value_name = "PORT")]
    pub grpc_port: Option<u16>,
    /// Port of gRPC health.
    #[arg(long, value_name = "PORT")]
    pub grpc_health_port: Option<u16>,
    /// Port of metrics, readiness, debugging and draining.
    #[arg(long, value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// TLS of the ext-proc port; false: plaintext.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub secure_serving: Option<bool>,
    /// Folder with tls.crt and tls.key for the ext-proc port; read again when they change.
    #[arg(long, value_name = "DIR")]
    pub cert_path: Option<PathBuf>,
    /// How long requests in flight may keep a picker that was told to stop, e.g. 30s.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub drain_timeout: Option<Duration>,
    /// Between two reads of a busy engine's metrics, e.g. 1s; at least 250ms.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub refresh_metrics_interval: Option<Duration>,
    /// Verbosity: 4 is debug, 5 and more trace.
    #[arg(short = 'v', long = "v", value_name = "NUMBER")]
    pub verbosity: Option<u8>,
}

impl Args {
    /// Reads the command line, and says which of its flags mean nothing here. The status to end with for a bad one, and for
    /// --help.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<(Self, Vec<Ignored>), ExitCode> {
        let (words, ignored) = translate(words);
        Ok((command_line::read(words)?, ignored))
    }
}
