//! Endpoints that are pods: found by labels, followed by a watch.
//!
//! One task reads three streams: the configuration (ports, labels, which may change at run time), the GIE InferencePool
//! if one says which pods, and the pods themselves. Nothing is published before the pods were listed once: an empty
//! store at start is no empty pool. While the API server is away, the last known set stays.

mod access;
mod client;
mod config_map;
mod hints;
mod pod;
mod pods;
mod pool;
mod retry;

use std::{collections::HashSet, pin::Pin, sync::Arc};

use futures::{Stream, StreamExt, stream};
use kube::{Client, runtime::watcher};
use lmetric_api::{PodEndpoints, Pods};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use access::{Access, Refusal};
pub use client::{ClientError, connect};
pub use config_map::{ConfigMapError, ConfigMapRef, KEY};
pub use hints::{EVENTS_PORT, Hints, RANKS, REPLAY_PORT};
pub use pod::PodFacts;
pub use pods::PodWatch;
pub use pool::{OLD_GROUP, PoolError, PoolRef, default_group};

use super::{Discovery, Endpoint, EndpointSet, KnownPod, PodRegistry};

/// Where pods are looked for.
#[derive(Clone)]
pub struct KubernetesParts {
    /// The API server.
    pub client: Client,
    /// Namespace of the pods.
    pub namespace: String,
    /// The GIE InferencePool that names the pods, where the configuration does not.
    pub pool: Option<PoolRef>,
    /// What the endpoints serve where the configuration does not say so.
    pub model: String,
    /// What the configuration says of the pods.
    pub settings: watch::Receiver<PodEndpoints>,
    /// Told of every pod before its endpoints are published.
    pub registry: Arc<PodRegistry>,
    /// Told of every watch that is refused.
    pub access: Access,
}

/// Follows pods.
pub struct KubernetesDiscovery {
    parts: KubernetesParts,
}

impl std::fmt::Debug for KubernetesDiscovery {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("KubernetesDiscovery")
            .field("namespace", &self.parts.namespace)
            .field("pool", &self.parts.pool)
            .finish_non_exhaustive()
    }
}

impl KubernetesDiscovery {
    /// Does nothing yet.
    pub fn new(parts: KubernetesParts) -> Self {
        Self { parts }
    }
}

/// What is followed now.
struct Following {
    access: Access,
    /// Which pods, by which ports; `None`: not known yet, or the pool is gone.
    pods: Option<Pods>,
    watch: Option<PodWatch>,
    /// Pods that were ready once.
    served: HashSet<Arc<str>>,
    last: Option<EndpointSet>,
}

impl Discovery for KubernetesDiscovery {
    async fn run(self, sets: watch::Sender<Option<EndpointSet>>, token: CancellationToken) {
        let KubernetesParts {
            client,
            namespace,
            pool,
            model,
            mut settings,
            registry,
            access,
        } = self.parts;
        let mut pools: Pin<Box<dyn Stream<Item = Option<Pods>> + Send>> = match pool {
            Some(pool) => pool::watch(client.clone(), pool, access.clone()).boxed(),
            None => stream::pending().boxed(),
        };
        let mut following = Following::new(access);
        let said = settings.borrow_and_update().pods.clone();
        following.aim(said, &client, &namespace);
        let mut may_change = true;
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                changed = settings.changed(), if may_change => {
                    may_change = changed.is_ok();
                    let said = settings.borrow_and_update().pods.clone();
                    if let Some(pods) = said {
                        following.aim(Some(pods), &client, &namespace);
                    }
                }
                Some(pods) = pools.next() => {
                    // a pool that was never there is not known to be empty
                    let gone = pods.is_none() && following.last.is_some();
                    following.aim(pods, &client, &namespace);
                    if gone {
                        registry.replace(Vec::new());
                        following.publish(Arc::from([]), &sets);
                    }
                }
                () = following.next() => {}
            }
            if let Some((known, set)) = following.set(&settings.borrow(), &model) {
                registry.replace(known);
                following.publish(set, &sets);
            }
        }
    }
}

impl Following {
    fn new(access: Access) -> Self {
        Self {
            access,
            pods: None,
            watch: None,
            served: HashSet::new(),
            last: None,
        }
    }

    /// Follows these pods from now on. What is published stays until the new ones are listed.
    fn aim(&mut self, pods: Option<Pods>, client: &Client, namespace: &str) {
        if self.pods == pods {
            return;
        }
        if let Some(Pods { selector, ports }) = &pods {
            tracing::info!(namespace, ?selector, ?ports, "following pods");
        }
        self.watch = pods
            .as_ref()
            .map(|pods| PodWatch::new(client.clone(), namespace, pods.clone(), self.access.clone()));
        self.pods = pods;
    }

    /// The next news of the pods.
    async fn next(&mut self) {
        match &mut self.watch {
            Some(watch) => watch.next().await,
            None => std::future::pending().await,
        }
    }

    /// All pods and all endpoints, once the pods were listed. At one address the pod that is not ending counts.
    fn set(&mut self, settings: &PodEndpoints, model: &str) -> Option<(Vec<KnownPod>, EndpointSet)> {
        let pods = self.watch.as_ref()?.listed()?;
        let ports = &self.pods.as_ref()?.ports;
        let model = settings.model.as_deref().unwrap_or(model);
        self.served.retain(|uid| pods.contains_key(uid));
        let known = pods.values().map(PodFacts::known).collect();
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for pod in pods.values() {
            // not yet ready for the first time: nobody listens there
            if !pod.ready && !pod.deleted && !self.served.contains(&pod.uid) {
                continue;
            }
            self.served.insert(pod.uid.clone());
            endpoints.extend(pod.endpoints(settings, ports, model));
        }
        endpoints.sort_by(|one, other| {
            let key = |endpoint: &Endpoint| {
                let out = (endpoint.terminating, !endpoint.ready);
                (endpoint.address, endpoint.rank, out, endpoint.pod.clone())
            };
            key(one).cmp(&key(other))
        });
        endpoints.dedup_by_key(|endpoint| (endpoint.address, endpoint.rank));
        Some((known, endpoints.into()))
    }

    fn publish(&mut self, set: EndpointSet, sets: &watch::Sender<Option<EndpointSet>>) {
        if self.last.as_ref() == Some(&set) {
            return;
        }
        tracing::debug!(endpoints = set.len(), "endpoints changed");
        self.last = Some(set.clone());
        sets.send_replace(Some(set));
    }
}

/// The server's own words where there are some.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}", status.code, status.message),
        error => error.to_string(),
    }
}

/// One line for a watch that failed; it goes on by itself. A refusal is noted.
fn failed(what: &str, error: &watcher::Error, access: &Access) {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    let (code, problem) = match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            let code = match error {
                kube::Error::Api(status) => status.code,
                _ => 0,
            };
            (code, words(error))
        }
        WatchError(status) => (status.code, status.message.clone()),
        NoResourceVersion => (0, error.to_string()),
    };
    if let Some(refusal) = Refusal::of(code) {
        access.refused(what, refusal);
        let remedy = refusal.remedy();
        tracing::error!(what, problem, remedy, "the API server refuses the watch");
        return;
    }
    match code {
        // the server's history is shorter than a pause of the watch: it lists anew
        410 => tracing::debug!(what, "the watch begins anew"),
        404 => tracing::error!(
            what,
            problem,
            "the API server does not know this kind; install its definition, or correct --pool-group"
        ),
        _ => tracing::warn!(
            what,
            problem,
            "the watch failed and is tried again; what was known stays"
        ),
    }
}

#[cfg(test)]
mod tests;
