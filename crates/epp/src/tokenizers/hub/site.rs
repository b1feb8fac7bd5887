//! Addresses of files, mirrors and access tokens, as the sites and their own clients have them.

use std::fmt;

use lmetric_api::{Repository, Site};

/// Longest access token that is read from a file.
const TOKEN_LIMIT: usize = 4_096;

/// What the environment says of one site.
#[derive(Clone, Default)]
pub struct SiteDefaults {
    /// A mirror.
    pub endpoint: Option<String>,
    /// An access token.
    pub token: Option<String>,
}

impl fmt::Debug for SiteDefaults {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SiteDefaults")
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .finish()
    }
}

/// What the environment says of both.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `HF_ENDPOINT`, `HF_TOKEN`.
    pub hugging_face: SiteDefaults,
    /// `MODELSCOPE_DOMAIN` (a host), `MODELSCOPE_API_TOKEN`.
    pub model_scope: SiteDefaults,
}

impl Environment {
    /// The process's own.
    pub fn read() -> Self {
        let said = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
        Self {
            hugging_face: SiteDefaults {
                endpoint: said("HF_ENDPOINT"),
                token: said("HF_TOKEN"),
            },
            model_scope: SiteDefaults {
                endpoint: said("MODELSCOPE_DOMAIN").map(|host| format!("https://{host}")),
                token: said("MODELSCOPE_API_TOKEN"),
            },
        }
    }

    fn of(&self, site: Site) -> &SiteDefaults {
        match site {
            Site::HuggingFace => &self.hugging_face,
            Site::ModelScope => &self.model_scope,
        }
    }

    /// Where a repository is asked for, without a slash at the end.
    pub(super) fn endpoint(&self, repository: &Repository) -> String {
        let public = match repository.site {
            Site::HuggingFace => "https://huggingface.co",
            Site::ModelScope => "https://www.modelscope.cn",
        };
        let defaults = &self.of(repository.site).endpoint;
        let endpoint = repository.endpoint.as_ref().or(defaults.as_ref());
        endpoint
            .map_or(public, |endpoint| endpoint.trim_end_matches('/'))
            .to_owned()
    }

    /// The token to show, read anew: a Secret may come or change while the picker runs.
    pub(super) async fn token(&self, repository: &Repository) -> Option<String> {
        let from_file = match &repository.token_file {
            Some(file) => tokio::fs::read_to_string(file).await.ok(),
            None => None,
        };
        from_file
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty() && text.len() <= TOKEN_LIMIT)
            .or_else(|| self.of(repository.site).token.clone())
    }
}

/// Address of one file.
pub(super) fn url(site: Site, endpoint: &str, repository: &str, revision: &str, file: &str) -> String {
    match site {
        // documented as hf_hub_url of huggingface_hub
        Site::HuggingFace => format!("{endpoint}/{repository}/resolve/{}/{file}", escaped(revision)),
        // get_file_download_url of modelscope.hub.file_download
        Site::ModelScope => format!(
            "{endpoint}/api/v1/models/{repository}/repo?Revision={}&FilePath={}",
            escaped(revision),
            escaped(file)
        ),
    }
}

/// Names of revisions and files hold nothing else that an address gives a meaning to.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F").replace('+', "%2B")
}
