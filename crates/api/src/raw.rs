//! The configuration as it stands in the file, and the step from there to [`PickerConfig`].

use std::{
    collections::HashSet,
    fmt,
    net::SocketAddr,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Deserializer, de};

use crate::{
    ConfigError, Endpoints, Events, Hotspot, Limits, Listen, ModelGroup, PageAccess, PickerConfig, Policy,
    Scrape, Tls, Tokens, duration, pods::RawPods, record::RawRecord,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawConfig {
    #[serde(default)]
    listen: RawListen,
    #[serde(default)]
    tls: RawTls,
    #[serde(default)]
    policy: Policy,
    #[serde(default)]
    shadow: Option<Policy>,
    #[serde(default = "filter", deserialize_with = "word")]
    hotspot: Hotspot,
    #[serde(default)]
    record: RawRecord,
    endpoints: RawEndpoints,
    #[serde(default)]
    models: Vec<RawModel>,
    #[serde(default)]
    tokenizer_cache: Option<PathBuf>,
    #[serde(default)]
    tokens: RawTokens,
    #[serde(default)]
    scrape: RawScrape,
    #[serde(default)]
    events: RawEvents,
    #[serde(default)]
    limits: RawLimits,
    #[serde(default = "prefill_rate")]
    prefill_rate: f64,
    #[serde(default = "one")]
    speed: f64,
    #[serde(default = "yes")]
    overlay: bool,
    #[serde(default = "loopback", deserialize_with = "word")]
    page: PageAccess,
    #[serde(default = "info")]
    log: String,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct RawListen {
    #[serde(deserialize_with = "address")]
    ext_proc: SocketAddr,
    #[serde(deserialize_with = "some_address")]
    ext_proc_tls: Option<SocketAddr>,
    #[serde(deserialize_with = "address")]
    health: SocketAddr,
    #[serde(deserialize_with = "some_address")]
    admin: Option<SocketAddr>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum RawTlsMode {
    #[default]
    SelfSigned,
    Files,
    Off,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct RawTls {
    #[serde(deserialize_with = "word")]
    mode: RawTlsMode,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawEndpoints {
    file: Option<PathBuf>,
    kubernetes: Option<RawPods>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawModel {
    names: Vec<String>,
    #[serde(default)]
    tokenizer: Option<String>,
    #[serde(default)]
    endpoint: Option<String>,
    #[serde(default)]
    token_file: Option<PathBuf>,
    #[serde(default = "image_tokens")]
    image_tokens: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct RawTokens {
    #[serde(deserialize_with = "duration::deserialize")]
    budget: Duration,
    threads: usize,
    queue: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct RawScrape {
    #[serde(deserialize_with = "duration::deserialize")]
    busy: Duration,
    #[serde(deserialize_with = "duration::deserialize")]
    idle: Duration,
    #[serde(deserialize_with = "duration::deserialize")]
    timeout: Duration,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct RawEvents {
    topic: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct RawLimits {
    body_bytes: usize,
    #[serde(deserialize_with = "duration::deserialize")]
    drain: Duration,
}

impl Default for RawListen {
    fn default() -> Self {
        Self {
            ext_proc: SocketAddr::from(([0, 0, 0, 0], 9002)),
            ext_proc_tls: None,
            health: SocketAddr::from(([0, 0, 0, 0], 9003)),
            admin: None,
        }
    }
}

impl Default for RawTokens {
    fn default() -> Self {
        Self {
            budget: Duration::from_millis(300),
            threads: 2,
            queue: 256,
        }
    }
}

impl Default for RawScrape {
    fn default() -> Self {
        Self {
            busy: Duration::from_secs(1),
            idle: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
        }
    }
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 20,
            drain: Duration::from_secs(30),
        }
    }
}

fn loopback() -> PageAccess {
    PageAccess::Loopback
}

fn filter() -> Hotspot {
    Hotspot::Filter
}

fn prefill_rate() -> f64 {
    8_000.0
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn info() -> String {
    "info".to_owned()
}

fn image_tokens() -> u32 {
    1_024
}

/// A value that is one of a few words.
pub(crate) trait Word: Sized + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl Word for Hotspot {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("Filter", Self::Filter),
        ("LoadOnly", Self::LoadOnly),
        ("Off", Self::Off),
    ];
}

impl Word for PageAccess {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("Loopback", Self::Loopback),
        ("Anyone", Self::Anyone),
        ("Off", Self::Off),
    ];
}

impl Word for RawTlsMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("SelfSigned", Self::SelfSigned),
        ("Files", Self::Files),
        ("Off", Self::Off),
    ];
}

/// A derived enum would read as a YAML tag and say so in its errors; this lists the words.
pub(crate) fn word<'de, D: Deserializer<'de>, T: Word + Copy>(from: D) -> Result<T, D::Error> {
    struct Visitor<T>(std::marker::PhantomData<T>);

    impl<T: Word + Copy> de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("one of ")?;
            for (at, (name, _)) in T::WORDS.iter().enumerate() {
                let comma = if at == 0 { "" } else { ", " };
                write!(to, "{comma}{name}")?;
            }
            Ok(())
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            T::WORDS
                .iter()
                .find(|(name, _)| *name == text)
                .map(|(_, value)| *value)
                .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
        }
    }

    from.deserialize_any(Visitor(std::marker::PhantomData))
}

/// `ip:port`, with a remedy instead of the standard library's terse message.
pub(crate) fn address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    struct Visitor;

    impl de::Visitor<'_> for Visitor {
        type Value = SocketAddr;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("ip:port, for example \"127.0.0.1:8000\" or \"[::1]:8000\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<SocketAddr, E> {
            text.parse().map_err(|_| {
                E::custom(format_args!(
                    "{text:?} is no address; write ip:port, for example \"127.0.0.1:8000\" or \"[::1]:8000\""
                ))
            })
        }
    }

    from.deserialize_any(Visitor)
}

fn some_address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    address(from).map(Some)
}

/// Ranges that validation enforces; outside of them a value is a slip of the pen.
mod range {
    use super::{Duration, RangeInclusive};

    pub(super) const BUDGET: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
    pub(super) const BUSY: RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_mins(1);
    pub(super) const IDLE: RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_mins(5);
    pub(super) const SCRAPE_TIMEOUT: RangeInclusive<Duration> =
        Duration::from_millis(10)..=Duration::from_secs(30);
    pub(super) const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(1);
    pub(super) const THREADS: RangeInclusive<usize> = 1..=64;
    pub(super) const QUEUE: RangeInclusive<usize> = 1..=65_536;
    pub(super) const BODY: RangeInclusive<usize> = 1_024..=1 << 30;
    pub(super) const IMAGE: RangeInclusive<u32> = 0..=1_000_000;
    pub(super) const RATE: RangeInclusive<f64> = 1.0..=10_000_000.0;
    pub(super) const SPEED: RangeInclusive<f64> = 0.01..=1_000.0;
}

impl RawConfig {
    pub(crate) fn validate(self, file: &Path) -> Result<PickerConfig, ConfigError> {
        let Self {
            listen,
            tls,
            policy,
            shadow,
            hotspot,
            record,
            endpoints,
            models,
            tokenizer_cache,
            tokens,
            scrape,
            events: RawEvents { topic },
            limits,
            prefill_rate,
            speed,
            overlay,
            page,
            log,
        } = self;
        let check = Check { file };
        check.policy("policy", policy)?;
        if let Some(shadow) = shadow {
            check.policy("shadow", shadow)?;
        }
        let record = record.validate(&check)?;
        let models = check.models(models)?;
        let tokenizer_cache = tokenizer_cache
            .map(|path| check.path("tokenizerCache", path))
            .transpose()?;
        let endpoints = check.endpoints(endpoints, &models)?;
        let listen = check.listen(listen, matches!(endpoints, Endpoints::Kubernetes(_)))?;
        let tls = check.tls(tls)?;
        if tls == Tls::Off && listen.ext_proc_tls.is_some() {
            return Err(check.error(
                "listen.extProcTls",
                "is given while tls.mode is Off",
                "write mode: SelfSigned or Files, or remove it",
            ));
        }
        check.within("tokens.budget", tokens.budget, &range::BUDGET)?;
        check.within("tokens.threads", tokens.threads, &range::THREADS)?;
        check.within("tokens.queue", tokens.queue, &range::QUEUE)?;
        check.within("scrape.busy", scrape.busy, &range::BUSY)?;
        check.within("scrape.idle", scrape.idle, &range::IDLE)?;
        check.within("scrape.timeout", scrape.timeout, &range::SCRAPE_TIMEOUT)?;
        if scrape.busy > scrape.idle {
            return Err(check.error(
                "scrape.idle",
                format!(
                    "{:?} is shorter than scrape.busy ({:?})",
                    scrape.idle, scrape.busy
                ),
                "make it at least as long as scrape.busy",
            ));
        }
        check.within("limits.bodyBytes", limits.body_bytes, &range::BODY)?;
        check.within("limits.drain", limits.drain, &range::DRAIN)?;
        check.within("prefillRate", prefill_rate, &range::RATE)?;
        check.within("speed", speed, &range::SPEED)?;
        if log.trim().is_empty() {
            return Err(check.error(
                "log",
                "is empty",
                "write a level such as info, or leave the field out",
            ));
        }
        Ok(PickerConfig {
            listen,
            tls,
            policy,
            shadow,
            hotspot,
            record,
            endpoints,
            models,
            tokenizer_cache,
            tokens: Tokens {
                budget: tokens.budget,
                threads: tokens.threads,
                queue: tokens.queue,
            },
            scrape: Scrape {
                busy: scrape.busy,
                idle: scrape.idle,
                timeout: scrape.timeout,
            },
            events: Events { topic },
            limits: Limits {
                body_bytes: limits.body_bytes,
                drain: limits.drain,
            },
            prefill_rate,
            speed,
            overlay,
            page,
            log,
        })
    }
}

pub(crate) struct Check<'a> {
    file: &'a Path,
}

impl Check<'_> {
    pub(crate) fn error(
        &self,
        field: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ConfigError {
        ConfigError::new(self.file, field, problem, remedy)
    }

    /// Only a simulation knows the fleet's own step times.
    fn policy(&self, field: &str, policy: Policy) -> Result<(), ConfigError> {
        let unnamed = policy
            .engine()
            .is_some_and(|engine| engine.model.profile().is_none());
        if policy.simulates() && unnamed {
            return Err(self.error(
                format!("{field}.model"),
                format!("{} simulates engines and no engine model is named", policy.name()),
                format!(
                    "write {{name: {}, model: qwen2-7b, gpu: H20}} with the model and GPU nearest to the engines'",
                    policy.name()
                ),
            ));
        }
        Ok(())
    }

    pub(crate) fn within<T: PartialOrd + fmt::Debug + Copy>(
        &self,
        field: &str,
        value: T,
        allowed: &RangeInclusive<T>,
    ) -> Result<(), ConfigError> {
        if allowed.contains(&value) {
            return Ok(());
        }
        Err(self.error(
            field,
            format!("{value:?} is out of range"),
            format!(
                "write something from {:?} to {:?}",
                allowed.start(),
                allowed.end()
            ),
        ))
    }

    pub(crate) fn path(&self, field: &str, path: PathBuf) -> Result<PathBuf, ConfigError> {
        if path.as_os_str().is_empty() {
            return Err(self.error(
                field,
                "is empty",
                "write a path, absolute or relative to this file",
            ));
        }
        // joining an absolute path replaces the base
        Ok(self.file.parent().unwrap_or(Path::new("")).join(path))
    }

    fn endpoints(&self, endpoints: RawEndpoints, models: &[ModelGroup]) -> Result<Endpoints, ConfigError> {
        match endpoints {
            RawEndpoints {
                file: Some(file),
                kubernetes: None,
            } => Ok(Endpoints::File(self.path("endpoints.file", file)?)),
            RawEndpoints {
                file: None,
                kubernetes: Some(pods),
            } => Ok(Endpoints::Kubernetes(pods.validate(self, models)?)),
            RawEndpoints {
                file: None,
                kubernetes: None,
            } => Err(self.error(
                "endpoints.file",
                "is missing",
                "add it, or kubernetes: {selector: {…}, ports: […]} instead",
            )),
            RawEndpoints {
                file: Some(_),
                kubernetes: Some(_),
            } => Err(self.error(
                "endpoints.file",
                "is given beside endpoints.kubernetes",
                "keep one of the two",
            )),
        }
    }

    fn listen(&self, listen: RawListen, on_kubernetes: bool) -> Result<Listen, ConfigError> {
        let RawListen {
            ext_proc,
            ext_proc_tls,
            health,
            admin,
        } = listen;
        let nearby = if on_kubernetes {
            [0, 0, 0, 0]
        } else {
            [127, 0, 0, 1]
        };
        let admin = admin.unwrap_or(SocketAddr::from((nearby, 9090)));
        let listeners = [
            Some(("listen.extProc", ext_proc)),
            ext_proc_tls.map(|address| ("listen.extProcTls", address)),
            Some(("listen.health", health)),
            Some(("listen.admin", admin)),
        ];
        let listeners: Vec<_> = listeners.into_iter().flatten().collect();
        let pairs = listeners.iter().enumerate().flat_map(|(at, (field, one))| {
            let before = listeners[..at].iter();
            before.map(move |(other_field, other)| (field, one, other_field, other))
        });
        for (field, one, other_field, other) in pairs {
            let same_ip = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
            if same_ip && one.port() == other.port() && one.port() != 0 {
                return Err(self.error(
                    *field,
                    format!("{one} is the port of {other_field} ({other})"),
                    "give each listener a port of its own",
                ));
            }
        }
        Ok(Listen {
            ext_proc,
            ext_proc_tls,
            health,
            admin,
        })
    }

    fn tls(&self, tls: RawTls) -> Result<Tls, ConfigError> {
        let RawTls {
            mode,
            cert_file,
            key_file,
        } = tls;
        match (mode, cert_file, key_file) {
            (RawTlsMode::SelfSigned, None, None) => Ok(Tls::SelfSigned),
            (RawTlsMode::Off, None, None) => Ok(Tls::Off),
            (RawTlsMode::Files, Some(cert_file), Some(key_file)) => Ok(Tls::Files {
                cert_file: self.path("tls.certFile", cert_file)?,
                key_file: self.path("tls.keyFile", key_file)?,
            }),
            (RawTlsMode::Files, None, _) => Err(self.error(
                "tls.certFile",
                "is missing",
                "mode Files needs certFile and keyFile, both PEM",
            )),
            (RawTlsMode::Files, _, None) => Err(self.error(
                "tls.keyFile",
                "is missing",
                "mode Files needs certFile and keyFile, both PEM",
            )),
            (RawTlsMode::SelfSigned | RawTlsMode::Off, Some(_), _) => Err(self.error(
                "tls.certFile",
                "is only used by mode Files",
                "write mode: Files or remove it",
            )),
            (RawTlsMode::SelfSigned | RawTlsMode::Off, None, Some(_)) => Err(self.error(
                "tls.keyFile",
                "is only used by mode Files",
                "write mode: Files or remove it",
            )),
        }
    }

    fn models(&self, models: Vec<RawModel>) -> Result<Vec<ModelGroup>, ConfigError> {
        let mut seen = HashSet::new();
        let mut groups = Vec::with_capacity(models.len());
        for (at, model) in models.into_iter().enumerate() {
            let RawModel {
                names,
                tokenizer,
                endpoint,
                token_file,
                image_tokens,
            } = model;
            if names.is_empty() {
                return Err(self.error(
                    format!("models[{at}].names"),
                    "is empty",
                    "list the names that requests use for the model",
                ));
            }
            for (position, name) in names.iter().enumerate() {
                let field = format!("models[{at}].names[{position}]");
                if name.trim().is_empty() {
                    return Err(self.error(field, "is empty", "write the model's name or remove it"));
                }
                if !seen.insert(name.clone()) {
                    return Err(self.error(
                        field,
                        format!("{name:?} is listed twice"),
                        "keep a name in one group only",
                    ));
                }
            }
            self.within(&format!("models[{at}].imageTokens"), image_tokens, &range::IMAGE)?;
            let tokenizer = self.tokenizer(at, tokenizer, endpoint, token_file)?;
            groups.push(ModelGroup {
                names,
                tokenizer,
                image_tokens,
            });
        }
        Ok(groups)
    }
}
