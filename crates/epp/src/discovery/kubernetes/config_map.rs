//! The picker's configuration in a ConfigMap, read and watched through the API: a mounted volume lags by up to 90 s.

use std::{path::PathBuf, time::Duration};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use tokio::time::{Instant, sleep};

use super::{Access, retry::Retry};

/// Key of the configuration in the ConfigMap.
pub const KEY: &str = "picker.yaml";
/// A ConfigMap that is made at the same time as the picker is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries.
const AGAIN: Duration = Duration::from_secs(1);

/// Name of the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A ConfigMap without a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigMapError {
    /// The API server does not give it.
    #[error(
        "configmap {namespace}/{name} cannot be read ({problem}); create it, or let the picker's service account get, list and watch configmaps there"
    )]
    Read {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// Why.
        problem: String,
    },
    /// It has no such key.
    #[error("configmap {namespace}/{name} has no key {KEY}; write the picker's configuration under it")]
    NoKey {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
}

impl ConfigMapRef {
    /// How messages name the configuration.
    pub fn file(&self) -> PathBuf {
        let Self { namespace, name } = self;
        format!("configmap/{namespace}/{name}/{KEY}").into()
    }

    fn text(&self, map: ConfigMap) -> Result<String, ConfigMapError> {
        let Self { namespace, name } = self;
        map.data
            .and_then(|mut data| data.remove(KEY))
            .ok_or_else(|| ConfigMapError::NoKey {
                namespace: namespace.clone(),
                name: name.clone(),
            })
    }

    /// The configuration; tried again for half a minute.
    pub async fn read(&self, client: &Client) -> Result<String, ConfigMapError> {
        let Self { namespace, name } = self;
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let begin = Instant::now();
        loop {
            match api.get(name).await {
                Ok(map) => return self.text(map),
                Err(error) if begin.elapsed() < PATIENCE => {
                    let problem = super::words(&error);
                    tracing::warn!(%namespace, %name, problem, "the ConfigMap cannot be read yet");
                    sleep(AGAIN).await;
                }
                Err(error) => {
                    return Err(ConfigMapError::Read {
                        namespace: namespace.clone(),
                        name: name.clone(),
                        problem: super::words(&error),
                    });
                }
            }
        }
    }

    /// The configuration whenever the ConfigMap changes, beginning with what it is now.
    pub fn watch(self, client: Client, access: Access) -> impl Stream<Item = String> + Send {
        let api: Api<ConfigMap> = Api::namespaced(client, &self.namespace);
        watcher::watch_object(api, &self.name)
            .backoff(Retry::default())
            .filter_map(move |seen| {
                if seen.is_ok() {
                    access.heard(&self.file().to_string_lossy());
                }
                let text = match seen {
                    Ok(Some(map)) => self.text(map).inspect_err(|error| {
                        tracing::error!(%error, "the configuration is gone; the last good one stays");
                    }),
                    Ok(None) => {
                        let Self { namespace, name } = &self;
                        tracing::warn!(%namespace, %name, "the ConfigMap is gone; its last configuration stays");
                        return futures::future::ready(None);
                    }
                    Err(error) => {
                        super::failed(&self.file().to_string_lossy(), &error, &access);
                        return futures::future::ready(None);
                    }
                };
                futures::future::ready(text.ok())
            })
    }
}
