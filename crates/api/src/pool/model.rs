//! Which model the engines serve, and where it comes from.

use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// The model and how engines load it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = model_rules()))]
pub struct Model {
    /// Where the model is: hf://ORG/NAME (Hugging Face), ms://ORG/NAME (ModelScope), pvc://CLAIM/PATH (a volume claim
    /// of this namespace), file:///PATH (in the image or a mount of podTemplate) or s3://BUCKET/PATH.
    #[schemars(length(max = 1024))]
    #[schemars(extend("x-kubernetes-validations" = uri_rules()))]
    pub uri: String,
    /// Branch, tag or commit of the model's repository. Default: the repository's own default branch. Only for
    /// hf:// and ms://.
    #[serde(default)]
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-validations" = [word_rule()]))]
    pub revision: String,
    /// Names by which requests ask for the model. Default: ORG/NAME for hf:// and ms://, else the pool's name.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    #[schemars(extend(
        "x-kubernetes-list-type" = "set",
        "x-kubernetes-validations" = [
            Rule::new("self.all(n, n.matches('^[^- ][^ ]*$'))")
                .message("holds something that no request could ask for; names have no spaces and no dash at their start"),
        ],
    ))]
    pub served_names: Vec<String>,
    /// Longest sequence that an engine accepts, prompt and answer together, in tokens. Default: what the model's own
    /// configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000_000))]
    pub max_model_len: Option<i32>,
    /// Number format of the weights and of computation. Default auto, which takes the model's own.
    #[serde(default)]
    pub dtype: Dtype,
    /// Quantization method that the engine should use, such as fp8 or awq. Default: what the model's own
    /// configuration says.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-validations" = [word_rule()]))]
    pub quantization: String,
    /// Number format of the KV cache, such as fp8_e4m3. Default auto, which follows dtype.
    #[serde(default = "auto")]
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-validations" = [word_rule()]))]
    pub kv_cache_dtype: String,
    /// Whether code that comes with the model may run in the engine. Default false.
    #[serde(default)]
    pub trust_remote_code: bool,
    /// A mirror to download from instead of the public site, http:// or https:// (HF_ENDPOINT or MODELSCOPE_DOMAIN).
    /// Default: the public site.
    #[serde(default)]
    #[schemars(length(max = 512))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self == '' || self.matches('^https?://[^ /]+')")
            .message("is no address of a mirror; write http:// or https:// and a host, such as https://hf-mirror.example"),
    ]))]
    pub endpoint: String,
    /// Secret of this namespace that holds the access token of the model's site. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKey>,
    /// LoRA adapters that every engine offers beside the model, each under its own name.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub adapters: Vec<Adapter>,
    /// Adapters that one batch of an engine may hold. Default 4. Only used with adapters.
    #[serde(default = "max_loras")]
    #[schemars(range(min = 1, max = 256))]
    pub max_loras: i32,
    /// Highest rank among the adapters: 8, 16, 32, 64, 128, 256, 320 or 512. Default 16. Only used with adapters.
    #[serde(default = "max_lora_rank")]
    #[schemars(range(min = 1, max = 512))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self in [1, 8, 16, 32, 64, 128, 256, 320, 512]")
            .message("is no rank that vLLM takes; write one of 8, 16, 32, 64, 128, 256, 320, 512 that is not below the highest rank of your adapters"),
    ]))]
    pub max_lora_rank: i32,
}

/// One LoRA adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Adapter {
    /// Name by which requests ask for the adapter.
    #[schemars(length(min = 1, max = 256))]
    #[schemars(extend("x-kubernetes-validations" = [
        Rule::new("self.matches('^[A-Za-z0-9][A-Za-z0-9._/-]*$')")
            .message("is no name of an adapter; use letters, digits, dots, dashes, underscores and slashes"),
    ]))]
    pub name: String,
    /// Where the adapter is; the same schemes as model.uri.
    #[schemars(length(max = 1024))]
    #[schemars(extend("x-kubernetes-validations" = uri_rules()))]
    pub uri: String,
}

/// A key of a Secret in the pool's namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("x-kubernetes-validations" = [schema::name_of("a Secret")]))]
    pub name: String,
    /// Key inside the Secret. Default token.
    #[serde(default = "token")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Number format of weights and computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// The model's own.
    #[default]
    Auto,
    /// bfloat16.
    Bfloat16,
    /// IEEE half precision.
    Float16,
    /// IEEE single precision.
    Float32,
}

impl Dtype {
    /// As the engine's flag wants it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Bfloat16 => "bfloat16",
            Self::Float16 => "float16",
            Self::Float32 => "float32",
        }
    }
}

/// A place that a model or an adapter comes from, out of its URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Hugging Face repository, `ORG/NAME`.
    HuggingFace(String),
    /// ModelScope repository, `ORG/NAME`.
    ModelScope(String),
    /// A path inside a volume claim; the path has no slash at its start and may be empty.
    Claim {
        /// Name of the claim.
        claim: String,
        /// Path inside it.
        path: String,
    },
    /// An absolute path in the engine's container.
    File(String),
    /// `s3://…`, which the engine reads itself.
    S3(String),
}

/// What [`Source::parse`] could not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no place of a model; write hf://ORG/NAME, ms://ORG/NAME, pvc://CLAIM/PATH, file:///PATH or s3://BUCKET/PATH"
)]
pub struct NotASource(String);

impl Source {
    /// Reads a URI as `model.uri` holds it.
    pub fn parse(uri: &str) -> Result<Self, NotASource> {
        let bad = || NotASource(uri.to_owned());
        let (scheme, rest) = uri.split_once("://").ok_or_else(bad)?;
        if rest.is_empty() || rest.contains("..") {
            return Err(bad());
        }
        match scheme {
            "hf" => Ok(Self::HuggingFace(rest.to_owned())),
            "ms" => Ok(Self::ModelScope(rest.to_owned())),
            "pvc" => {
                let (claim, path) = rest.split_once('/').unwrap_or((rest, ""));
                if claim.is_empty() {
                    return Err(bad());
                }
                Ok(Self::Claim {
                    claim: claim.to_owned(),
                    path: path.trim_matches('/').to_owned(),
                })
            }
            "file" if rest.starts_with('/') => Ok(Self::File(rest.to_owned())),
            "s3" => Ok(Self::S3(uri.to_owned())),
            _ => Err(bad()),
        }
    }
}

impl Model {
    /// Names by which requests may ask for the model of the pool named `pool`; the first is the one to show.
    pub fn names(&self, pool: &str) -> Vec<String> {
        if !self.served_names.is_empty() {
            return self.served_names.clone();
        }
        match Source::parse(&self.uri) {
            Ok(Source::HuggingFace(repository) | Source::ModelScope(repository)) => vec![repository],
            _ => vec![pool.to_owned()],
        }
    }
}

fn uri_rules() -> [Rule; 2] {
    [
        Rule::new("self.matches('^(hf|ms|pvc|file|s3)://')")
            .message("names no place of a model; write hf://ORG/NAME, ms://ORG/NAME, pvc://CLAIM/PATH, file:///PATH or s3://BUCKET/PATH"),
        Rule::new(
            "!self.matches('^(hf|ms|pvc|file|s3)://') || (!self.contains('..') && \
             self.matches('^((hf|ms)://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?|pvc://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[A-Za-z0-9._/-]*)?|file:///[A-Za-z0-9._/-]+|s3://[a-z0-9][a-z0-9.-]+(/[A-Za-z0-9._/-]*)?)$'))",
        )
        .message("has the wrong form after its scheme; hf:// and ms:// take ORG/NAME, pvc:// takes CLAIM/PATH, file:// an absolute path, s3:// BUCKET/PATH, all without spaces and '..'"),
    ]
}

/// For what becomes the value of a flag.
fn word_rule() -> Rule {
    Rule::new("self.matches('^([A-Za-z0-9][A-Za-z0-9._/-]*)?$')")
        .message("is no single word; use letters, digits, dots, dashes, underscores and slashes, a letter or digit first")
}

fn model_rules() -> [Rule; 5] {
    [
        Rule::new("self.revision == '' || self.uri.startsWith('hf://') || self.uri.startsWith('ms://')")
            .message("only hf:// and ms:// have revisions; remove the revision or name a repository in uri")
            .field_path(".revision"),
        Rule::new("self.endpoint == '' || self.uri.startsWith('hf://') || self.uri.startsWith('ms://')")
            .message("only hf:// and ms:// are downloaded from a mirror; remove the endpoint or name a repository in uri")
            .field_path(".endpoint"),
        Rule::new("!self.adapters.exists(a, a.name in self.servedNames)")
            .message("an adapter has the name of the model, so that requests for it would be ambiguous; give the adapter a name of its own")
            .field_path(".adapters"),
        Rule::new("!self.adapters.exists(a, a.uri.startsWith('s3://'))")
            .message("vLLM does not load adapters from s3://; put them on a volume (pvc://) or into a repository (hf://, ms://)")
            .field_path(".adapters"),
        Rule::new(
            "!(self.uri.startsWith('hf://') && self.adapters.exists(a, a.uri.startsWith('ms://'))) && \
             !(self.uri.startsWith('ms://') && self.adapters.exists(a, a.uri.startsWith('hf://')))",
        )
        .message("an engine downloads from one site only; take model and adapters both from hf:// or both from ms://, or put the adapters on a volume (pvc://)")
        .field_path(".adapters"),
    ]
}

fn auto() -> String {
    "auto".to_owned()
}

fn token() -> String {
    "token".to_owned()
}

const fn max_loras() -> i32 {
    4
}

const fn max_lora_rank() -> i32 {
    16
}
