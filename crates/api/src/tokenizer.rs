//! Where a group's tokenizer comes from: a folder, or a repository that the picker downloads it from.
//!
//! ```yaml
//! models:
//! - {names: [a], tokenizer: /models/a}                       # folder with tokenizer.json and tokenizer_config.json
//! - names: [b]
//!   tokenizer: hf://ORG/NAME@REVISION                        # Hugging Face; ms:// is ModelScope
//!   endpoint: https://mirror.example                         # default: HF_ENDPOINT or MODELSCOPE_DOMAIN, else the public site
//!   tokenFile: /run/secrets/token                            # default: HF_TOKEN or MODELSCOPE_API_TOKEN
//! ```

use std::{fmt, path::PathBuf};

use crate::{ConfigError, raw::Check};

/// Where a tokenizer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerSource {
    /// Folder with `tokenizer.json` and `tokenizer_config.json`.
    Folder(PathBuf),
    /// Downloaded.
    Repository(Repository),
}

/// A model's repository on a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The site, or what it is mirrored from.
    pub site: Site,
    /// `ORG/NAME`.
    pub name: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// Mirror, without a slash at its end; `None`: what the environment says, else the public site.
    pub endpoint: Option<String>,
    /// File with the access token, read at each attempt; it need not exist. `None`: from the environment.
    pub token_file: Option<PathBuf>,
}

/// A site with models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// `hf://`
    HuggingFace,
    /// `ms://`
    ModelScope,
}

impl Site {
    /// The revision that a repository has where nothing names one.
    pub fn default_revision(self) -> &'static str {
        match self {
            Self::HuggingFace => "main",
            Self::ModelScope => "master",
        }
    }

    /// The scheme in URIs.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::HuggingFace => "hf",
            Self::ModelScope => "ms",
        }
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}://{}@{}", self.site.scheme(), self.name, self.revision)
    }
}

impl fmt::Display for TokenizerSource {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(to, "{}", folder.display()),
            Self::Repository(repository) => repository.fmt(to),
        }
    }
}

impl Check<'_> {
    /// The three fields of `models[at]`.
    pub(crate) fn tokenizer(
        &self,
        at: usize,
        tokenizer: Option<String>,
        endpoint: Option<String>,
        token_file: Option<PathBuf>,
    ) -> Result<Option<TokenizerSource>, ConfigError> {
        let field = |name: &str| format!("models[{at}].{name}");
        let repository = match &tokenizer {
            Some(text) => self.repository(&field("tokenizer"), text)?,
            None => None,
        };
        let Some((site, name, revision)) = repository else {
            for (name, given) in [
                ("endpoint", endpoint.is_some()),
                ("tokenFile", token_file.is_some()),
            ] {
                if given {
                    return Err(self.error(
                        field(name),
                        "is only used where the tokenizer is downloaded",
                        "write tokenizer: hf://ORG/NAME or ms://ORG/NAME, or remove it",
                    ));
                }
            }
            let folder = tokenizer.map(|folder| self.path(&field("tokenizer"), folder.into()));
            return Ok(folder.transpose()?.map(TokenizerSource::Folder));
        };
        let endpoint = match endpoint {
            Some(endpoint) if !is_endpoint(&endpoint) => {
                return Err(self.error(
                    field("endpoint"),
                    format!("{endpoint:?} is no address of a mirror"),
                    "write http:// or https://, a host, and no more than a path, such as https://hf-mirror.example",
                ));
            }
            endpoint => endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_owned()),
        };
        let token_file = token_file
            .map(|path| self.path(&field("tokenFile"), path))
            .transpose()?;
        Ok(Some(TokenizerSource::Repository(Repository {
            site,
            name,
            revision,
            endpoint,
            token_file,
        })))
    }

    /// Site, name and revision of `hf://ORG/NAME@REVISION`; `None` for what is a path.
    fn repository(&self, field: &str, text: &str) -> Result<Option<(Site, String, String)>, ConfigError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(None);
        };
        let site = match scheme {
            "hf" => Site::HuggingFace,
            "ms" => Site::ModelScope,
            _ => {
                return Err(self.error(
                    field,
                    format!("{text:?} is no place that a tokenizer is read from"),
                    "write a folder, hf://ORG/NAME or ms://ORG/NAME, or leave it out: tokens then come from the engines",
                ));
            }
        };
        let (name, revision) = rest.split_once('@').unwrap_or((rest, site.default_revision()));
        let parts = name.split('/').count();
        if !(1..=2).contains(&parts) || !name.split('/').all(is_word) || !is_revision(revision) {
            return Err(self.error(
                field,
                format!("{text:?} names no repository"),
                format!("write {scheme}://ORG/NAME or {scheme}://ORG/NAME@REVISION"),
            ));
        }
        Ok(Some((site, name.to_owned(), revision.to_owned())))
    }
}

/// Letters, digits, dots, dashes and underscores, and no step to a parent folder.
fn is_word(text: &str) -> bool {
    is_revision(text) && !text.contains("..") && !text.contains('/')
}

fn is_revision(text: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | '/');
    text.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && text.len() <= 256
        && text.chars().all(is_inner)
}

fn is_endpoint(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        !rest.starts_with('/')
            && !rest.is_empty()
            && !rest.contains(|letter: char| letter.is_whitespace() || letter.is_control())
    })
}
