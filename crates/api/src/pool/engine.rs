//! The engine: its image, its flags, its ports.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{refused, schema};

/// The vLLM that serves the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Engine {
    /// Image with vLLM, tag or digest included, such as vllm/vllm-openai:v0.33.0.
    #[schemars(length(max = 512))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.matches('^[A-Za-z0-9][A-Za-z0-9._:/@-]*$')")
            .message("is no image; write NAME:TAG or NAME@DIGEST without spaces, such as vllm/vllm-openai:v0.33.0"),
    ]))]
    pub image: String,
    /// Version of vLLM in the image, such as 0.33.0; it decides which flags exist. Default: read from the image's tag.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self == '' || self.matches('^v?[0-9]+[.][0-9]+([.][0-9]+)?([.+-].*|rc[0-9]+.*)?$')")
            .message("is no version of vLLM; write it as 0.33.0, or remove it if the image's tag tells it"),
    ]))]
    pub version: String,
    /// When the image is pulled. Default IfNotPresent.
    #[serde(default)]
    pub pull_policy: PullPolicy,
    /// Secrets of this namespace with which the image is pulled.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pull_secrets: Vec<SecretName>,
    /// Further flags of vLLM, one list item each for a flag and its value. Flags that fields of this object set are
    /// refused.
    #[serde(default)]
    #[schemars(schema_with = "schema::args")]
    pub args: Vec<String>,
    /// Further environment variables of the engine's container. Those that would part it from the picker are refused.
    #[serde(default)]
    #[schemars(schema_with = "schema::list::<EnvVar, 128>")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
        "x-kubernetes-validations" = refused::variable_rules(),
    ))]
    pub env: Vec<EnvVar>,
    /// ConfigMaps and Secrets whose keys become environment variables.
    #[serde(default)]
    #[schemars(schema_with = "schema::list::<EnvFromSource, 32>")]
    pub env_from: Vec<EnvFromSource>,
    /// Port of the engine's HTTP API; data-parallel rank R listens on port + R. Default 8000.
    #[serde(default = "port")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// Share of each accelerator's memory that the engine may use, as text from "0.1" to "1.0". Default "0.85".
    #[serde(default = "gpu_memory_utilization")]
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.matches('^(0[.][1-9][0-9]{0,4}|1|1[.]0{1,4})$')")
            .message("is no share of memory; write a text from \"0.1\" to \"1.0\", such as \"0.85\""),
    ]))]
    pub gpu_memory_utilization: String,
    /// Requests that an engine (each data-parallel rank) runs at the same time. Default 256.
    #[serde(default = "max_num_seqs")]
    #[schemars(range(min = 1, max = 65_536))]
    pub max_num_seqs: i32,
    /// Tokens in a block of the KV cache: 1, 8, 16, 32, 64, 128 or 256. Default 16.
    #[serde(default = "block_size")]
    #[schemars(range(min = 1, max = 256))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self in [1, 8, 16, 32, 64, 128, 256]")
            .message("is no block size that vLLM takes; write 1, 8, 16, 32, 64, 128 or 256"),
    ]))]
    pub block_size: i32,
    /// Where engines tell what their KV caches hold.
    #[serde(default)]
    pub kv_events: KvEvents,
}

/// Ports of the KV-cache events. Pickers of this pool only can reach them where network policies are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KvEvents {
    /// Port on which events are published; data-parallel rank R uses port + R. Default 5557.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// Port on which missed events are asked for again; data-parallel rank R uses replayPort + R. Default 5657.
    #[schemars(range(min = 1, max = 65_535))]
    pub replay_port: i32,
}

impl Default for KvEvents {
    fn default() -> Self {
        Self {
            port: 5_557,
            replay_port: 5_657,
        }
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// When the node has none.
    #[default]
    IfNotPresent,
    /// The node must have it.
    Never,
}

impl PullPolicy {
    /// As a container's imagePullPolicy wants it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// A Secret of the pool's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretName {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl Engine {
    /// Version of vLLM as `(major, minor, patch)`, from `version` or else the image's tag; `None` if neither tells.
    pub fn vllm_version(&self) -> Option<(u32, u32, u32)> {
        if self.version.is_empty() {
            let image = self
                .image
                .split_once('@')
                .map_or(self.image.as_str(), |(name, _)| name);
            let name = image.rsplit_once('/').map_or(image, |(_, name)| name);
            name.split_once(':').and_then(|(_, tag)| numbers(tag))
        } else {
            numbers(&self.version)
        }
    }
}

fn numbers(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.').map(|part| {
        let digits = part
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    let (major, minor) = (parts.next()??, parts.next()??);
    Some((major, minor, parts.next().flatten().unwrap_or(0)))
}

const fn port() -> i32 {
    8_000
}

fn gpu_memory_utilization() -> String {
    "0.85".to_owned()
}

const fn max_num_seqs() -> i32 {
    256
}

const fn block_size() -> i32 {
    16
}
