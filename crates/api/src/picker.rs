//! The picker's configuration as the rest of the program sees it: complete, in range, paths resolved.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use lmetric_policy::PolicyKind;

use crate::{ConfigError, PodEndpoints, TokenizerSource, raw::RawConfig};

/// Everything that `lmetric-epp` can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct PickerConfig {
    /// Addresses to listen on.
    pub listen: Listen,
    /// TLS of the ext-proc port.
    pub tls: Tls,
    /// How an endpoint is chosen.
    pub policy: PolicyKind,
    /// A second policy that scores every request beside it and places none.
    pub shadow: Option<PolicyKind>,
    /// What is done about a KV-cache hotspot.
    pub hotspot: Hotspot,
    /// Where finished requests are recorded.
    pub record: Record,
    /// Where the endpoints are found.
    pub endpoints: Endpoints,
    /// Tokenizer groups.
    pub models: Vec<ModelGroup>,
    /// Folder that downloaded tokenizers are kept in; `None`: `lmetric/tokenizers` in the user's cache folder.
    pub tokenizer_cache: Option<PathBuf>,
    /// The token ladder.
    pub tokens: Tokens,
    /// Reading the engines' metrics.
    pub scrape: Scrape,
    /// KV events.
    pub events: Events,
    /// Bounds.
    pub limits: Limits,
    /// Prefill rate assumed before any was measured, tokens per second.
    pub prefill_rate: f64,
    /// Model seconds per real second: divides scrape intervals, windows and ejection times.
    pub speed: f64,
    /// Whether blocks of open reservations count as held (off only for experiments).
    pub overlay: bool,
    /// Who may look at the live page on the admin port.
    pub page: PageAccess,
    /// Log filter in `tracing` syntax, e.g. `info,lmetric_epp=debug`.
    pub log: String,
}

/// Where the endpoints are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// A file that lists them; watched.
    File(PathBuf),
    /// Pods of the picker's namespace; watched.
    Kubernetes(PodEndpoints),
}

/// Addresses to listen on; port 0 takes a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// gRPC, ext-proc: over TLS, unless that is off or has a port of its own.
    pub ext_proc: SocketAddr,
    /// The same over TLS, where `ext_proc` is to be plaintext: for gateways of both kinds.
    pub ext_proc_tls: Option<SocketAddr>,
    /// gRPC, health.
    pub health: SocketAddr,
    /// HTTP: metrics, readiness, debugging, and on Kubernetes draining, which engines ask for: there it is reached
    /// from outside the pod (`0.0.0.0:9090` unless written), elsewhere only from this machine (`127.0.0.1:9090`).
    pub admin: SocketAddr,
}

/// TLS of the ext-proc port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// A certificate made at start; proxies do not verify it.
    SelfSigned,
    /// PEM files, read again when they change.
    Files {
        /// Certificate chain.
        cert_file: PathBuf,
        /// Private key.
        key_file: PathBuf,
    },
    /// Plain HTTP/2.
    Off,
}

/// Where finished requests are recorded: lengths and salted ids of prompt blocks, never text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Nowhere.
    Off,
    /// Lines on standard output (logs are on standard error).
    Stdout,
    /// Files that are rotated: `path` is being written, `path.1`, `path.2`, … are older.
    File {
        /// The file that is being written.
        path: PathBuf,
        /// Most bytes of one file.
        max_bytes: u64,
        /// Most files, the one being written included.
        files: u32,
    },
}

/// What is done about a KV-cache hotspot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hotspot {
    /// Its holders are taken out of the running for the class.
    Filter,
    /// The class is placed by load only.
    LoadOnly,
    /// Nothing is detected.
    Off,
}

/// Who may look at the live page on the admin port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
    /// Who is on this machine, whatever address the admin port listens on; `kubectl port-forward` is.
    Loopback,
    /// Whoever reaches the admin port.
    Anyone,
    /// Nobody.
    Off,
}

/// Models that share one tokenizer and chat template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelGroup {
    /// Names that requests and endpoints use; the first one names the group.
    pub names: Vec<String>,
    /// Where its tokenizer comes from; without one, tokens come from the engine.
    pub tokenizer: Option<TokenizerSource>,
    /// Tokens that an image counts as, uncached.
    pub image_tokens: u32,
}

impl ModelGroup {
    /// The group's name in key spaces.
    pub fn name(&self) -> &str {
        &self.names[0]
    }
}

/// The token ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// For the whole ladder, after which the estimate is used.
    pub budget: Duration,
    /// Threads that tokenize.
    pub threads: usize,
    /// Requests that may wait for one of them; with a full queue the estimate is used at once.
    pub queue: usize,
}

/// Reading the engines' metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrape {
    /// Between two reads of an endpoint that has requests.
    pub busy: Duration,
    /// Between two reads of an idle one.
    pub idle: Duration,
    /// For one read.
    pub timeout: Duration,
}

/// KV events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Topic prefix to subscribe to; empty for all.
    pub topic: String,
}

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body, bytes; more is answered with 413.
    pub body_bytes: usize,
    /// How long requests in flight may keep a picker that was told to stop.
    pub drain: Duration,
}

impl PickerConfig {
    /// Parses and validates. `file` is named in errors, and its folder is what relative paths start from.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let raw: RawConfig = serde_yaml::from_str(text).map_err(|error| ConfigError::yaml(file, &error))?;
        raw.validate(file)
    }
}
