//! Tokenizer files from a model's site: exactly those that [`lmetric_tokenize`] reads, all of one commit where the site
//! tells it, bounded in size and time, and kept in a folder so that a restart needs no site.

mod cache;
mod client;
mod site;

use std::{path::PathBuf, time::Duration};

use lmetric_api::{Repository, Site};

pub use cache::{Cache, CacheError};
pub use client::{GetError, HubClient};
pub use site::{Environment, SiteDefaults};

/// Largest single file; those of the models that are served today are below 40 MiB.
pub const FILE_LIMIT: usize = 64 << 20;
/// All files of one tokenizer.
pub const SUM_LIMIT: usize = 128 << 20;
/// For one file, however slowly it arrives.
const FILE_TIMEOUT: Duration = Duration::from_mins(10);
/// A refusal in JSON is shorter than this.
const ANSWER: usize = 4_096;

/// (name, whether a tokenizer can do without it).
const FILES: [(&str, bool); 5] = [
    ("tokenizer.json", false),
    ("tokenizer_config.json", false),
    ("chat_template.jinja", true),
    ("chat_template.json", true),
    ("additional_chat_templates/tool_use.jinja", true),
];

/// Why a tokenizer could not be had: one line with the address and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubError {
    /// The site wants another token, or any.
    #[error(
        "{url}: status {status}{code}; the repository does not exist or a token must be allowed to read it: check model.uri, \
         and name a Secret with such a token in model.secretRef (without the operator: tokenFile, HF_TOKEN or MODELSCOPE_API_TOKEN)"
    )]
    Forbidden {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
        /// ` (…)`, what the site calls it, or empty.
        code: String,
    },
    /// It is not there.
    #[error(
        "{url}: status {status}{code}; check repository, revision and endpoint; a repository without this file has no fast \
         tokenizer: tokens then come from the engines"
    )]
    Missing {
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
        /// ` (…)`, what the site calls it, or empty.
        code: String,
    },
    /// The address is none.
    #[error("{0:?} is no address; correct the endpoint: http:// or https:// and a host")]
    Address(String),
    /// No whole answer.
    #[error(
        "{url}: {source}; the picker tries again: let it reach the site, or name a mirror in model.endpoint"
    )]
    Get {
        /// What was asked for.
        url: String,
        /// Why.
        source: GetError,
    },
    /// More than all files together may hold.
    #[error(
        "{0}: its tokenizer's files are larger than {SUM_LIMIT} bytes together; give the picker a folder instead"
    )]
    TooLarge(String),
    /// The folder cannot be written.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl HubError {
    /// A person must correct something; trying again soon helps nobody.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Forbidden { .. } | Self::Missing { .. } | Self::Address(_) | Self::TooLarge(_) => true,
            Self::Get { source, .. } => matches!(source, GetError::TooLarge(_)),
            Self::Cache(_) => false,
        }
    }
}

/// Downloads tokenizers and keeps them. Clones share connections and folder.
#[derive(Clone, Debug)]
pub struct Hub {
    client: HubClient,
    cache: Cache,
    environment: Environment,
}

/// A tokenizer's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Folder that holds them.
    pub folder: PathBuf,
    /// They were there already.
    pub kept: bool,
}

impl Hub {
    /// Keeps files in `cache`.
    pub fn new(cache: Cache, environment: Environment) -> Self {
        Self {
            client: HubClient::default(),
            cache,
            environment,
        }
    }

    /// The files of `repository`, downloaded unless they are here.
    pub async fn files(&self, repository: &Repository) -> Result<Files, HubError> {
        let endpoint = self.environment.endpoint(repository);
        let folder = self.cache.folder(repository, &endpoint);
        if self.cache.holds(&folder).await {
            return Ok(Files { folder, kept: true });
        }
        let token = self.environment.token(repository).await;
        let mut revision = repository.revision.clone();
        let mut found = Vec::new();
        let mut sum = 0;
        for (name, dispensable) in FILES {
            let url = site::url(repository.site, &endpoint, &repository.name, &revision, name);
            let answer = tokio::time::timeout(
                FILE_TIMEOUT,
                self.client
                    .get(&url, token.as_deref(), FILE_LIMIT.min(SUM_LIMIT - sum)),
            )
            .await
            .unwrap_or(Err(GetError::Slow(FILE_TIMEOUT)));
            let answer = match answer {
                Ok(answer) if is_refusal(repository.site, &answer.body) => Err(GetError::Status(404, None)),
                answer => answer,
            };
            let answer = match answer {
                Ok(answer) => answer,
                Err(GetError::Status(404, _)) if dispensable => continue,
                Err(GetError::TooLarge(_)) if sum > 0 && SUM_LIMIT - sum < FILE_LIMIT => {
                    return Err(HubError::TooLarge(repository.to_string()));
                }
                Err(error) => return Err(refused(url, error)),
            };
            // a branch may move between two files
            if let Some(commit) = answer.commit {
                revision = commit;
            }
            sum += answer.body.len();
            found.push((name, answer.body));
        }
        self.cache.keep(&folder, found).await?;
        Ok(Files { folder, kept: false })
    }

    /// Throws away files that turned out to be useless, so that they are downloaded again.
    pub async fn forget(&self, files: &Files) {
        self.cache.forget(&files.folder).await;
    }
}

/// ModelScope may answer 200 and say in JSON that there is no such file.
fn is_refusal(site: Site, body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Answer {
        #[serde(rename = "Success")]
        success: bool,
    }
    site == Site::ModelScope
        && body.len() <= ANSWER
        && serde_json::from_slice::<Answer>(body).is_ok_and(|answer| !answer.success)
}

fn refused(url: String, error: GetError) -> HubError {
    let named = |code: Option<String>| code.map_or_else(String::new, |code| format!(" ({code})"));
    match error {
        GetError::Status(status @ (401 | 403), code) => HubError::Forbidden {
            url,
            status,
            code: named(code),
        },
        GetError::Status(status @ (400 | 404 | 410), code) => HubError::Missing {
            url,
            status,
            code: named(code),
        },
        GetError::Address(address) => HubError::Address(address),
        source => HubError::Get { url, source },
    }
}

#[cfg(test)]
mod tests;
