//! Everything that can be wrong is found here, before a port is bound: the command line, the configuration, the log
//! filter, the endpoints file, the tokenizers, the certificate, the way to the API server.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::Client;
use lmetric_api::{ConfigError, Endpoints, ModelGroup, PickerConfig, PodEndpoints, TokenizerSource};
use lmetric_telemetry::Logs;
use lmetric_tokenize::LoadError;
use tokio::sync::watch;

use crate::{
    args::{Args, KubernetesArgs},
    discovery::{
        AnyDiscovery, FileDiscovery, KubernetesDiscovery, PodRegistry,
        kubernetes::{
            Access, ClientError, ConfigMapError, ConfigMapRef, KubernetesParts, PoolRef, connect,
            default_group,
        },
    },
    record,
    reload::Written,
    tls::{ServerTls, TlsError},
    tokenizers::apart,
    tokens::{GroupMap, GroupTokens},
};

/// What the endpoints serve where nothing gives it a name.
const NAMELESS: &str = "engines";
/// The configuration of a picker that has none.
const DEFAULTS: &str = "endpoints: {kubernetes: {}}\n";

/// A configuration that can be run.
pub struct Loaded {
    /// As written, but for what flags say.
    pub config: PickerConfig,
    /// Path of the file, for messages about binding.
    pub file: PathBuf,
    /// Who finds the endpoints.
    pub discovery: AnyDiscovery,
    /// The pods that may ask to be drained.
    pub pods: Arc<PodRegistry>,
    /// Whether the API server still lets the picker see its pods.
    pub access: Access,
    /// Tokenizer groups by name, with the tokenizers that could be loaded at once.
    pub groups: GroupMap,
    /// Certificate of the ext-proc port; `None` where TLS is off.
    pub tls: Option<ServerTls>,
    /// A configuration that is followed while the picker runs.
    pub written: Option<Written>,
    /// `--conformance`.
    pub conformance: bool,
}

/// Why the picker cannot start: one line with file, field and remedy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration or the endpoints file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tokenizer folder.
    #[error(transparent)]
    Tokenizer(#[from] LoadError),
    /// A certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The way to the API server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The ConfigMap.
    #[error(transparent)]
    ConfigMap(#[from] ConfigMapError),
    /// Nothing says what to do.
    #[error("nothing says where the engines are; give --config FILE, --config-map NAME or --pool-name NAME")]
    Nothing,
}

/// What [`prepare`] leaves to be done on the way to [`Loaded`].
struct Prepared {
    config: PickerConfig,
    groups: GroupMap,
    tls: Option<ServerTls>,
    place: Place,
}

/// Where the endpoints are found, checked.
enum Place {
    File(FileDiscovery),
    Pods(PodEndpoints),
}

/// Checks everything that `args` and the configuration name, but for pods: asks the API server for the ConfigMap at most.
pub async fn check(args: &Args) -> Result<(), StartError> {
    let (text, file, _) = text(args).await?;
    prepare(args, &text, &file).map(drop)
}

/// Reads and checks everything that `args` and the configuration name.
pub async fn load(args: &Args) -> Result<Loaded, StartError> {
    let (text, file, map) = text(args).await?;
    let Prepared {
        config,
        groups,
        tls,
        place,
    } = prepare(args, &text, &file)?;
    let pods = Arc::new(PodRegistry::default());
    let access = Access::default();
    let mut written = None;
    let discovery = match place {
        Place::File(file) => AnyDiscovery::File(file),
        Place::Pods(endpoints) => {
            let (client, map) = match map {
                Some((client, map)) => (client, Some(map)),
                None => (connect(args.kubernetes.kubeconfig.as_deref()).await?, None),
            };
            let (settings, followed) = watch::channel(endpoints);
            let parts = parts(
                &args.kubernetes,
                client.clone(),
                followed,
                pods.clone(),
                access.clone(),
            );
            if let Some(pod) = &args.kubernetes.pod_name {
                tracing::info!(pod, namespace = parts.namespace, "on Kubernetes");
            }
            written = map.map(|map| Written {
                file: file.clone(),
                texts: Box::pin(map.watch(client, access.clone())),
                args: args.clone(),
                settings,
            });
            AnyDiscovery::Kubernetes(Box::new(KubernetesDiscovery::new(parts)))
        }
    };
    Ok(Loaded {
        config,
        file,
        discovery,
        pods,
        access,
        groups,
        tls,
        written,
        conformance: args.conformance,
    })
}

/// The configuration's text, its name in messages, and the ConfigMap that it is from.
async fn text(args: &Args) -> Result<(String, PathBuf, Option<(Client, ConfigMapRef)>), StartError> {
    let kubernetes = &args.kubernetes;
    if let Some(file) = &args.config {
        let text = std::fs::read_to_string(file).map_err(|error| ConfigError::unreadable(file, &error))?;
        return Ok((text, file.clone(), None));
    }
    if let Some(name) = &kubernetes.config_map {
        let client = connect(kubernetes.kubeconfig.as_deref()).await?;
        let map = ConfigMapRef {
            namespace: namespace(kubernetes, &client),
            name: name.clone(),
        };
        let text = map.read(&client).await?;
        return Ok((text, map.file(), Some((client, map))));
    }
    if kubernetes.pool_name.is_some() || kubernetes.endpoint_selector.is_some() {
        return Ok((DEFAULTS.to_owned(), "(flags)".into(), None));
    }
    Err(StartError::Nothing)
}

fn prepare(args: &Args, text: &str, file: &Path) -> Result<Prepared, StartError> {
    let (config, endpoints) = settle(args, text, file)?;
    record::check(&config.record, file)?;
    let tls = ServerTls::new(&config.tls)?;
    let place = match endpoints {
        Endpoints::File(path) => Place::File(FileDiscovery::open(&path)?),
        Endpoints::Kubernetes(pods) => Place::Pods(pods),
    };
    Ok(Prepared {
        groups: groups(&config.models, args.kubernetes.config_map.is_some())?,
        config,
        tls,
        place,
    })
}

/// The configuration with what flags say, and the endpoints as both together name them.
pub(crate) fn settle(args: &Args, text: &str, file: &Path) -> Result<(PickerConfig, Endpoints), ConfigError> {
    let Args {
        config: _,
        check: _,
        conformance: _,
        log,
        kubernetes,
        over,
    } = args;
    let mut config = PickerConfig::parse(text, file)?;
    over.apply(log.as_deref(), &mut config);
    check_log(&config.log, log.is_some(), file)?;
    let endpoints = named(kubernetes, &config.endpoints, file)?;
    Ok((config, endpoints))
}

/// The endpoints with the pods that flags select. A configuration that selects pods itself needs no flag.
fn named(args: &KubernetesArgs, endpoints: &Endpoints, file: &Path) -> Result<Endpoints, ConfigError> {
    let selector = args.endpoint_selector.as_deref();
    let flag = match (selector, &args.pool_name) {
        (Some(_), _) => Some("--endpoint-selector"),
        (None, Some(_)) => Some("--pool-name"),
        (None, None) => None,
    };
    match (endpoints, flag) {
        (Endpoints::File(_), Some(flag)) => Err(ConfigError::new(
            file,
            "endpoints.file",
            format!("is given beside {flag}"),
            format!("remove {flag}, or write endpoints: {{kubernetes: {{}}}}"),
        )),
        (Endpoints::Kubernetes(PodEndpoints { pods: None, .. }), None) => Err(ConfigError::new(
            file,
            "endpoints.kubernetes",
            "names no pods",
            "write selector and ports, or give --pool-name",
        )),
        (Endpoints::Kubernetes(pods), _) if pods.pods.is_none() && selector.is_some() => {
            let mut pods = pods.clone();
            pods.pods = Some(selected(args, file)?);
            Ok(Endpoints::Kubernetes(pods))
        }
        (endpoints, _) => Ok(endpoints.clone()),
    }
}

/// The pods of `--endpoint-selector` and `--endpoint-target-ports`.
fn selected(args: &KubernetesArgs, file: &Path) -> Result<lmetric_api::Pods, ConfigError> {
    let text = args.endpoint_selector.as_deref().unwrap_or_default();
    let labels: Option<_> = text
        .split(',')
        .map(|label| {
            let (name, value) = label.split_once('=')?;
            let value = value.strip_prefix('=').unwrap_or(value);
            (!name.trim().is_empty()).then(|| (name.trim().to_owned(), value.trim().to_owned()))
        })
        .collect();
    match labels {
        Some(selector) if !args.endpoint_target_ports.contains(&0) => Ok(lmetric_api::Pods {
            selector,
            ports: args.endpoint_target_ports.clone(),
        }),
        _ => Err(ConfigError::new(
            file,
            "--endpoint-selector",
            format!("{text:?} is no list of labels, or --endpoint-target-ports has a port 0"),
            "write name=value, several with commas, and ports from 1 to 65535",
        )),
    }
}

fn namespace(args: &KubernetesArgs, client: &Client) -> String {
    let own = || client.default_namespace().to_owned();
    args.namespace.clone().unwrap_or_else(own)
}

fn parts(
    args: &KubernetesArgs,
    client: Client,
    settings: watch::Receiver<PodEndpoints>,
    registry: Arc<PodRegistry>,
    access: Access,
) -> KubernetesParts {
    let namespace = match &args.pool_namespace {
        Some(namespace) => namespace.clone(),
        None => namespace(args, &client),
    };
    let selects = settings.borrow().pods.is_some();
    if selects && args.pool_name.is_some() {
        tracing::info!("the configuration selects pods itself; --pool-name has no effect");
    }
    let pool = args.pool_name.as_ref().filter(|_| !selects).map(|name| PoolRef {
        group: args.pool_group.clone().unwrap_or_else(default_group),
        namespace: namespace.clone(),
        name: name.clone(),
    });
    let model = args.pool.as_ref().or(args.pool_name.as_ref());
    KubernetesParts {
        client,
        namespace,
        pool,
        model: model.map_or_else(|| NAMELESS.to_owned(), Clone::clone),
        settings,
        registry,
        access,
    }
}

/// The groups with what is in folders. A ConfigMap's folders are mounts: what is wrong there must not keep the picker
/// from starting, so those are loaded later, as downloads are.
fn groups(models: &[ModelGroup], mounted: bool) -> Result<GroupMap, LoadError> {
    let mut groups = GroupMap::new();
    for model in models {
        let mut group = GroupTokens::new(model);
        if let (Some(TokenizerSource::Folder(folder)), false) = (&model.tokenizer, mounted) {
            group.tokenizer = Some(Arc::new(apart::load(folder)?));
        }
        groups.insert(Arc::from(model.name()), Arc::new(group));
    }
    Ok(groups)
}

fn check_log(filter: &str, from_flag: bool, file: &Path) -> Result<(), ConfigError> {
    let field = if from_flag { "--log" } else { "log" };
    Logs::check(filter).map_err(|_| {
        ConfigError::new(
            file,
            field,
            format!("{filter:?} is no log filter"),
            "write a level such as info, or info,lmetric_epp=debug",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn settled(line: &str, text: &str) -> Result<Endpoints, String> {
        let words = std::iter::once("lmetric-epp").chain(line.split_whitespace());
        let (args, _) = Args::read(words.map(OsString::from)).unwrap();
        settle(&args, text, Path::new("picker.yaml"))
            .map(|(_, endpoints)| endpoints)
            .map_err(|error| error.to_string())
    }

    const SELECTS: &str = "endpoints: {kubernetes: {selector: {app: vllm}, ports: [8000]}}\n";

    #[test]
    fn pods_are_named_by_the_configuration_or_by_flags() {
        let pods = |line: &str, text: &str| match settled(line, text).expect("good") {
            Endpoints::Kubernetes(endpoints) => endpoints.pods.map(|pods| (pods.selector, pods.ports)),
            Endpoints::File(file) => panic!("{}", file.display()),
        };
        let selector = |name: &str| [(name.to_owned(), "vllm".to_owned())].into();
        assert_eq!(pods("--pool-name p", DEFAULTS), None, "the pool says it");
        assert_eq!(pods("", SELECTS), Some((selector("app"), vec![8000])));
        assert_eq!(
            pods("--pool-name p", SELECTS),
            Some((selector("app"), vec![8000]))
        );
        let flags = "--endpoint-selector role==vllm --endpoint-target-ports 8000,8001";
        assert_eq!(pods(flags, DEFAULTS), Some((selector("role"), vec![8000, 8001])));
    }

    #[test]
    fn a_configuration_that_names_no_pods_says_how_to() {
        for (line, text, words) in [
            ("", DEFAULTS, "--pool-name"),
            (
                "--pool-name p",
                "endpoints: {file: endpoints.yaml}\n",
                "remove --pool-name",
            ),
            (
                "--endpoint-selector app --endpoint-target-ports 1",
                DEFAULTS,
                "name=value",
            ),
            (
                "--endpoint-selector a=b --endpoint-target-ports 0",
                DEFAULTS,
                "1 to 65535",
            ),
        ] {
            let error = settled(line, text).expect_err(line);
            assert!(error.contains(words), "{error}");
        }
    }

    #[tokio::test]
    async fn without_any_source_the_remedy_is_named() {
        let (args, _) = Args::read([OsString::from("lmetric-epp")]).unwrap();
        let error = check(&args).await.expect_err("nothing").to_string();
        assert!(error.contains("--config-map"), "{error}");
    }
}
