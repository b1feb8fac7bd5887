//! Prepared objects to the API server.
//!
//! Server-side apply with one field manager. No request when nothing changed: the hash of the payload is an annotation
//! of the object, and [`Memory`] knows how the object looked after our last apply. Before the first
//! apply of each, an object of that name without our owner reference is a [`Conflict`], and is not touched; but one that
//! this operator applied for a pool of this name, and that nobody owns since, is taken up again as it is. What the
//! pool owned and is not built any more is deleted. A refusal by the API server leaves the old object as it was,
//! and the others go on.

mod account;
mod memory;
mod one;
mod orphans;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{Client, Resource, core::NamespaceResourceScope, runtime::reflector::Store};
use serde::{Serialize, de::DeserializeOwned};

pub use memory::{Memory, Remembered};
pub(crate) use one::hash;

use crate::{
    metrics::Metrics,
    resources::{Applied, Prepared, Resources},
    watch::Stores,
    words::Words,
};

/// A kind that a pool can own.
pub trait Child:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> Child for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// An object that needs a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub what: What,
}

/// What is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Somebody else has an object of that name.
    Conflict,
    /// The API server finds it invalid; its words. The pool's specification is at fault.
    Invalid(String),
    /// The API server refuses it: quota, policy, rights; its words.
    Refused(String),
}

/// Why applying did not come to an end; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A request failed.
    #[error("cannot {verb} {kind} {name}: {}", Words(&**source))]
    Request {
        /// What was tried.
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// What the client says.
        source: Box<kube::Error>,
    },
    /// An object cannot be written as JSON.
    #[error("cannot write {kind} {name} as JSON: {source}")]
    Json {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Objects as the API server has them.
    pub applied: Resources<Applied>,
    /// Objects that it does not have as they were built.
    pub troubles: Vec<Trouble>,
}

/// Applies for one pool.
pub struct Applier<'a> {
    /// Requests go here.
    pub client: &'a Client,
    /// What was applied before.
    pub memory: &'a Memory,
    /// Counts writes.
    pub metrics: &'a Metrics,
    /// The pool's namespace.
    pub namespace: &'a str,
    /// The pool's name.
    pub pool: &'a str,
    /// The pool's UID.
    pub uid: &'a str,
}

impl Applier<'_> {
    /// Applies everything in order, then deletes orphans.
    pub async fn apply(&self, prepared: Resources<Prepared>, stores: &Stores) -> Result<Outcome, ApplyError> {
        let Resources {
            service_accounts,
            role_bindings,
            config_maps,
            claims,
            services,
            network_policies,
            mut deployments,
            disruption_budgets,
            gie_pools,
            destination_rules,
            route_filters,
            backends,
            routes,
            extension_policies,
            traffic_policies,
            pod_monitors,
            prometheus_rules,
            stage: _,
        } = prepared;
        let mut troubles = Vec::new();
        let mut applied = Resources::<Applied>::empty();
        applied.service_accounts = self
            .kind(service_accounts, &stores.service_accounts, &mut troubles)
            .await?;
        applied.role_bindings = self
            .kind(role_bindings, &stores.role_bindings, &mut troubles)
            .await?;
        applied.config_maps = self.kind(config_maps, &stores.config_maps, &mut troubles).await?;
        applied.claims = self.kind(claims, &stores.claims, &mut troubles).await?;
        applied.services = self.kind(services, &stores.services, &mut troubles).await?;
        applied.network_policies = self
            .kind(network_policies, &stores.network_policies, &mut troubles)
            .await?;
        self.bind_pickers(&mut deployments, &applied.service_accounts, &stores.deployments);
        applied.deployments = self.kind(deployments, &stores.deployments, &mut troubles).await?;
        applied.disruption_budgets = self
            .kind(disruption_budgets, &stores.disruption_budgets, &mut troubles)
            .await?;
        applied.gie_pools = self.kind(gie_pools, &stores.gie_pools, &mut troubles).await?;
        applied.destination_rules = self
            .kind(destination_rules, &stores.destination_rules, &mut troubles)
            .await?;
        applied.route_filters = self
            .kind(route_filters, &stores.route_filters, &mut troubles)
            .await?;
        applied.backends = self.kind(backends, &stores.backends, &mut troubles).await?;
        applied.routes = self.kind(routes, &stores.routes, &mut troubles).await?;
        applied.extension_policies = self
            .kind(extension_policies, &stores.extension_policies, &mut troubles)
            .await?;
        applied.traffic_policies = self
            .kind(traffic_policies, &stores.traffic_policies, &mut troubles)
            .await?;
        applied.pod_monitors = self
            .kind(pod_monitors, &stores.pod_monitors, &mut troubles)
            .await?;
        applied.prometheus_rules = self
            .kind(prometheus_rules, &stores.prometheus_rules, &mut troubles)
            .await?;
        Ok(Outcome { applied, troubles })
    }

    /// Applies all objects of a kind and deletes the others of the pool.
    async fn kind<K: Child>(
        &self,
        prepared: Vec<K>,
        store: &Store<K>,
        troubles: &mut Vec<Trouble>,
    ) -> Result<Vec<K>, ApplyError> {
        let names: Vec<String> = prepared
            .iter()
            .filter_map(|object| object.meta().name.clone())
            .collect();
        let mut applied = Vec::with_capacity(prepared.len());
        for object in prepared {
            let name = object.meta().name.clone().unwrap_or_default();
            match self.one(object, store).await? {
                Ok(object) => applied.push(object),
                Err(what) => troubles.push(Trouble {
                    kind: K::kind(&()).into_owned(),
                    name,
                    what,
                }),
            }
        }
        self.delete_orphans(&names, store).await?;
        Ok(applied)
    }
}

impl Outcome {
    /// The applied Deployment of that name.
    pub fn deployment(&self, name: &str) -> Option<&Deployment> {
        self.applied
            .deployments
            .iter()
            .find(|deployment| deployment.metadata.name.as_deref() == Some(name))
    }

    /// The applied Service of that name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.applied
            .services
            .iter()
            .find(|service| service.metadata.name.as_deref() == Some(name))
    }
}

/// The kind as a label of metrics.
fn kind_name<K: Child>() -> &'static str {
    match K::kind(&()) {
        std::borrow::Cow::Borrowed(name) => name,
        std::borrow::Cow::Owned(_) => "other",
    }
}

fn request<K: Child>(verb: &'static str, name: &str, source: kube::Error) -> ApplyError {
    ApplyError::Request {
        verb,
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    }
}
