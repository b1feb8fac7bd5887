//! Everything that can be wrong is found here, before a port is bound: the configuration, the log filter, the
//! endpoints file, the tokenizers, the certificate.

use std::{collections::HashMap, path::Path, sync::Arc};

use lmetric_api::{ConfigError, PickerConfig};
use lmetric_telemetry::Logs;
use lmetric_tokenize::{LoadError, ModelTokenizer};

use crate::{
    args::Args,
    discovery::FileDiscovery,
    tls::{ServerTls, TlsError},
    tokens::{GroupTokens, Trust},
};

/// A configuration that can be run.
pub struct Loaded {
    /// As written.
    pub config: PickerConfig,
    /// Path of the file, for messages about binding.
    pub file: std::path::PathBuf,
    /// The endpoints file, read once.
    pub discovery: FileDiscovery,
    /// Tokenizer groups by name.
    pub groups: HashMap<Arc<str>, GroupTokens>,
    /// Certificate of the ext-proc port; `None` where TLS is off.
    pub tls: Option<ServerTls>,
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
}

/// Reads and checks everything that `args` and the configuration name.
pub fn load(args: &Args) -> Result<Loaded, StartError> {
    let Args {
        config: file,
        check: _,
        log,
    } = args;
    let text = std::fs::read_to_string(file).map_err(|error| ConfigError::unreadable(file, &error))?;
    let mut config = PickerConfig::parse(&text, file)?;
    if let Some(log) = log {
        config.log.clone_from(log);
    }
    check_log(&config.log, log.is_some(), file)?;
    let tls = ServerTls::new(&config.tls)?;
    let discovery = FileDiscovery::open(&config.endpoints)?;
    let mut groups = HashMap::new();
    for group in &config.models {
        let tokenizer = group
            .tokenizer
            .as_deref()
            .map(ModelTokenizer::load)
            .transpose()?
            .map(Arc::new);
        let tokens = GroupTokens {
            tokenizer,
            image_tokens: group.image_tokens,
            trust: Trust::default(),
        };
        groups.insert(Arc::from(group.name()), tokens);
    }
    Ok(Loaded {
        config,
        file: file.clone(),
        discovery,
        groups,
        tls,
    })
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
