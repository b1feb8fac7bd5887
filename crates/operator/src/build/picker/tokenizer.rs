//! What a picker needs to download the model's tokenizer: the mirror, the token, a folder.

use k8s_openapi::api::core::v1::{EnvVar, KeyToPath, SecretVolumeSource, Volume, VolumeMount};
use lmetric_api::pool::{SecretKey, Source};

use super::pod;
use crate::validated::Validated;

/// Folder of downloaded tokenizers; it lives as long as the pod.
pub(super) const CACHE_PATH: &str = "/var/cache/lmetric/tokenizers";
/// Folder of the access token.
const TOKEN_PATH: &str = "/var/run/lmetric/hub";
/// The access token.
pub(super) const TOKEN_FILE: &str = "/var/run/lmetric/hub/token";

/// How the site of a model is reached.
pub(super) struct Site {
    /// A mirror.
    pub(super) endpoint: Option<String>,
    /// Where the token is.
    pub(super) secret: Option<SecretKey>,
    /// Variables that the pool gives to its engines for the same end.
    pub(super) env: Vec<EnvVar>,
}

impl Site {
    /// `None` where nothing is downloaded.
    pub(super) fn of(validated: &Validated) -> Option<Self> {
        let spec = &validated.pool.spec;
        let (endpoint, token) = match validated.source {
            Source::HuggingFace(_) => ("HF_ENDPOINT", "HF_TOKEN"),
            Source::ModelScope(_) => ("MODELSCOPE_DOMAIN", "MODELSCOPE_API_TOKEN"),
            Source::Claim { .. } | Source::File(_) | Source::S3(_) => return None,
        };
        let env: Vec<EnvVar> = spec
            .engine
            .env
            .iter()
            .filter(|variable| variable.name == endpoint || variable.name == token)
            .cloned()
            .map(dispensable)
            .collect();
        let is_own = |name: &str| env.iter().any(|variable| variable.name == name);
        Some(Self {
            endpoint: pod::said(&spec.model.endpoint).filter(|_| !is_own(endpoint)),
            secret: spec.model.secret_ref.clone().filter(|_| !is_own(token)),
            env,
        })
    }

    /// A file and not a variable: a Secret that comes late or changes is seen without a restart, and one that is missing
    /// keeps no picker from starting.
    pub(super) fn volumes(self) -> Vec<(Volume, VolumeMount)> {
        let cache = (
            pod::empty_dir("tokenizers", "1Gi"),
            pod::mount("tokenizers", CACHE_PATH, false),
        );
        let token = self.secret.map(|SecretKey { name, key }| {
            let volume = Volume {
                name: "hub".to_owned(),
                secret: Some(SecretVolumeSource {
                    secret_name: Some(name),
                    optional: Some(true),
                    items: Some(vec![KeyToPath {
                        key,
                        path: "token".to_owned(),
                        ..KeyToPath::default()
                    }]),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            };
            (volume, pod::mount("hub", TOKEN_PATH, true))
        });
        std::iter::once(cache).chain(token).collect()
    }
}

/// Without its Secret or ConfigMap the picker starts all the same.
fn dispensable(mut variable: EnvVar) -> EnvVar {
    if let Some(source) = &mut variable.value_from {
        if let Some(key) = &mut source.secret_key_ref {
            key.optional = Some(true);
        }
        if let Some(key) = &mut source.config_map_key_ref {
            key.optional = Some(true);
        }
    }
    variable
}
