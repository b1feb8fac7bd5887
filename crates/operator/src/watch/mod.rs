//! What the API server holds of pools and of everything that belongs to them, kept up to date by one watch for each kind.
//!
//! Every replica watches, so that a follower is warm when it becomes leader. A change puts the pool that it is about
//! into [`Wakes`]; a set, so a follower that nobody drains holds each pool once. An object that cannot be read is
//! logged and skipped; only pools stay in their store as they are, because their status can tell. Decisions wait
//! until [`Stores::synced`].

mod apis;
mod gateways;
mod kind;
mod retry;
mod wakes;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::RoleBinding,
};
use kube::{
    Client,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store, store::WriterDropped},
};
use lmetric_api::{
    foreign::{
        envoy_gateway::{
            Backend, BackendTrafficPolicy, ClientTrafficPolicy, EnvoyExtensionPolicy, HTTPRouteFilter,
        },
        gateway::{Gateway, GatewayClass, HTTPRoute},
        gie,
        istio::DestinationRule,
        prometheus::{PodMonitor, PrometheusRule},
    },
    pool::{InferencePool, names::label},
};
use lmetric_telemetry::Tasks;
use tokio::{sync::watch, time::timeout};

pub use apis::{Apis, Prober, Reach};
pub use wakes::Wakes;

use crate::{args::Scope, metrics::Metrics};
use kind::Watch;

/// Longest wait for optional kinds at the start.
const SETTLING: Duration = Duration::from_secs(10);

/// A pool as a watch shows it: readable or not.
pub type Guarded = DeserializeGuard<InferencePool>;
/// Which pool.
pub type PoolRef = ObjectRef<Guarded>;

/// Everything that is watched.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each field is named after its kind")]
pub struct Stores {
    pub pools: Store<Guarded>,
    pub service_accounts: Store<ServiceAccount>,
    pub role_bindings: Store<RoleBinding>,
    pub config_maps: Store<ConfigMap>,
    pub claims: Store<PersistentVolumeClaim>,
    pub services: Store<Service>,
    pub network_policies: Store<NetworkPolicy>,
    pub deployments: Store<Deployment>,
    pub disruption_budgets: Store<PodDisruptionBudget>,
    pub replica_sets: Store<ReplicaSet>,
    pub pods: Store<Pod>,
    pub gie_pools: Store<gie::InferencePool>,
    pub destination_rules: Store<DestinationRule>,
    pub route_filters: Store<HTTPRouteFilter>,
    pub backends: Store<Backend>,
    pub routes: Store<HTTPRoute>,
    pub extension_policies: Store<EnvoyExtensionPolicy>,
    pub traffic_policies: Store<BackendTrafficPolicy>,
    pub gateways: Store<Gateway>,
    pub gateway_classes: Store<GatewayClass>,
    pub client_policies: Store<ClientTrafficPolicy>,
    pub pod_monitors: Store<PodMonitor>,
    pub prometheus_rules: Store<PrometheusRule>,
}

impl Stores {
    /// Starts all watches as tasks of the process.
    pub fn start(
        client: &Client,
        scope: &Scope,
        apis: &watch::Receiver<Apis>,
        wakes: &Wakes,
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Self {
        let watch = Watch {
            client: client.clone(),
            scope: scope.clone(),
            wakes: wakes.clone(),
            metrics: metrics.clone(),
            tasks: tasks.clone(),
        };
        let ours = format!(
            "{}={},{}",
            label::MANAGED_BY,
            label::MANAGED_BY_VALUE,
            label::POOL
        );
        // pods and what makes them get their labels from a template that a person may overlay
        let theirs = label::POOL;
        let pools = watch.pools();
        Self {
            gateways: gateways::gateways(&watch, apis.clone(), pools.clone()),
            gateway_classes: gateways::classes(&watch, apis.clone(), pools.clone()),
            client_policies: gateways::client_policies(&watch, apis.clone(), pools.clone()),
            pools,
            service_accounts: watch.always("service accounts", &ours),
            role_bindings: watch.always("role bindings", &ours),
            config_maps: watch.always("config maps", &ours),
            claims: watch.always("volume claims", &ours),
            services: watch.always("services", &ours),
            network_policies: watch.always("network policies", &ours),
            deployments: watch.always("deployments", &ours),
            disruption_budgets: watch.always("disruption budgets", &ours),
            replica_sets: watch.always("replica sets", theirs),
            pods: watch.always("pods", theirs),
            gie_pools: watch.optional("gie pools", &ours, apis.clone(), |apis| apis.gie_pools),
            destination_rules: watch.optional("destination rules", &ours, apis.clone(), |apis| {
                apis.destination_rules
            }),
            route_filters: watch.optional("route filters", &ours, apis.clone(), |apis| apis.envoy_gateway),
            backends: watch.optional("backends", &ours, apis.clone(), |apis| apis.envoy_gateway),
            routes: watch.optional("routes", &ours, apis.clone(), |apis| apis.routes),
            extension_policies: watch.optional("extension policies", &ours, apis.clone(), |apis| {
                apis.envoy_gateway
            }),
            traffic_policies: watch
                .optional("traffic policies", &ours, apis.clone(), |apis| apis.envoy_gateway),
            pod_monitors: watch.optional("pod monitors", &ours, apis.clone(), |apis| apis.pod_monitors),
            prometheus_rules: watch.optional("prometheus rules", &ours, apis.clone(), |apis| {
                apis.prometheus_rules
            }),
        }
    }

    /// Waits until every store that is always there holds what the API server holds.
    pub async fn synced(&self) -> Result<(), WriterDropped> {
        let Self {
            pools,
            service_accounts,
            role_bindings,
            config_maps,
            claims,
            services,
            network_policies,
            deployments,
            disruption_budgets,
            replica_sets,
            pods,
            gie_pools: _,
            destination_rules: _,
            route_filters: _,
            backends: _,
            routes: _,
            extension_policies: _,
            traffic_policies: _,
            gateways: _,
            gateway_classes: _,
            client_policies: _,
            pod_monitors: _,
            prometheus_rules: _,
        } = self;
        pools.wait_until_ready().await?;
        service_accounts.wait_until_ready().await?;
        role_bindings.wait_until_ready().await?;
        config_maps.wait_until_ready().await?;
        claims.wait_until_ready().await?;
        services.wait_until_ready().await?;
        network_policies.wait_until_ready().await?;
        deployments.wait_until_ready().await?;
        disruption_budgets.wait_until_ready().await?;
        replica_sets.wait_until_ready().await?;
        pods.wait_until_ready().await
    }

    /// Waits until what decides about Gateways is known, where it is installed and answers in time: an operator that
    /// restarts must not take a Gateway for gone that it has not seen yet.
    pub async fn settled(&self, apis: Apis) {
        let all = async {
            if apis.gateways.covers(true) {
                self.gateways.wait_until_ready().await?;
            }
            if apis.gateway_classes.covers(false) {
                self.gateway_classes.wait_until_ready().await?;
            }
            if apis.client_policies.covers(true) {
                self.client_policies.wait_until_ready().await?;
            }
            if apis.routes {
                self.routes.wait_until_ready().await?;
            }
            if apis.destination_rules {
                self.destination_rules.wait_until_ready().await?;
            }
            Ok::<_, WriterDropped>(())
        };
        if timeout(SETTLING, all).await.is_err() {
            tracing::warn!(
                "some optional APIs do not show their objects within {SETTLING:?}; pools are worked on without them"
            );
        }
    }

    /// Objects of a pool in one store.
    pub fn of<K>(store: &Store<K>, namespace: &str, pool: &str) -> Vec<Arc<K>>
    where
        K: kube::Resource<DynamicType = ()> + Clone + 'static,
    {
        store.state_filter(|object| {
            let meta = object.meta();
            meta.namespace.as_deref() == Some(namespace)
                && meta
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get(label::POOL))
                    .is_some_and(|value| value == pool)
        })
    }
}
