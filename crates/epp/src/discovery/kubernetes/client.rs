//! The connection to the API server.

use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// No API server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A kubeconfig cannot be used.
    #[error("{}: {problem}; correct --kubeconfig", file.display())]
    Kubeconfig {
        /// The file.
        file: PathBuf,
        /// Why.
        problem: String,
    },
    /// Neither in a pod nor a kubeconfig.
    #[error(
        "no API server is known ({0}); run the picker in a pod with a service account, or give --kubeconfig FILE"
    )]
    Nowhere(String),
}

/// A client by the pod's own service account, or by a kubeconfig.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let config = match kubeconfig {
        Some(file) => {
            let error = |problem: String| ClientError::Kubeconfig {
                file: file.to_owned(),
                problem,
            };
            let read = Kubeconfig::read_from(file).map_err(|problem| error(problem.to_string()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(|problem| error(problem.to_string()))?
        }
        None => Config::infer()
            .await
            .map_err(|problem| ClientError::Nowhere(problem.to_string()))?,
    };
    Client::try_from(config).map_err(|problem| ClientError::Nowhere(problem.to_string()))
}
