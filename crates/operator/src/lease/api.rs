//! The three requests that an election needs.

use std::future::Future;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};

use crate::words::Words;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Somebody else wrote it in between.
    #[error("the lease was written by somebody else in between")]
    Conflict,
    /// Anything else.
    #[error("{}", Words(.0))]
    Api(#[from] kube::Error),
}

/// One Lease.
pub trait Leases: Send + Sync {
    /// The Lease, if it exists.
    fn get(&self) -> impl Future<Output = Result<Option<Lease>, LeaseError>> + Send;
    /// Makes it.
    fn create(&self, lease: Lease) -> impl Future<Output = Result<Lease, LeaseError>> + Send;
    /// Writes it, if it still has the resourceVersion of `lease`.
    fn replace(&self, lease: Lease) -> impl Future<Output = Result<Lease, LeaseError>> + Send;
}

/// A Lease of the API server, by name.
#[derive(Clone, Debug)]
pub struct NamedLease {
    /// Leases of the operator's namespace.
    pub api: Api<Lease>,
    /// Its name.
    pub name: String,
}

impl Leases for NamedLease {
    async fn get(&self) -> Result<Option<Lease>, LeaseError> {
        Ok(self.api.get_opt(&self.name).await?)
    }

    async fn create(&self, mut lease: Lease) -> Result<Lease, LeaseError> {
        lease.metadata.name = Some(self.name.clone());
        self.api
            .create(&PostParams::default(), &lease)
            .await
            .map_err(sorted)
    }

    async fn replace(&self, mut lease: Lease) -> Result<Lease, LeaseError> {
        lease.metadata.managed_fields = None;
        self.api
            .replace(&self.name, &PostParams::default(), &lease)
            .await
            .map_err(sorted)
    }
}

fn sorted(error: kube::Error) -> LeaseError {
    match error {
        kube::Error::Api(status) if status.code == 409 => LeaseError::Conflict,
        other => LeaseError::Api(other),
    }
}
