//! APIs that a cluster may lack, or that the operator may not read: looked for at the start and again and again, so that
//! installing one, or granting a right, needs no restart.
//!
//! Asked for rather than watched: to watch definitions is a right in the whole cluster that an operator of one namespace
//! does not have, and their metadata alone is megabytes where a few hundred are installed. That one is gone shows in its
//! watch, which then asks for a look at once ([`Doubts`]).

use std::{
    fmt::{self, Debug},
    sync::Arc,
    time::Duration,
};

use kube::{Api, Client, Resource, api::ListParams};
use lmetric_api::foreign::{
    envoy_gateway::{self, ClientTrafficPolicy},
    gateway::{self, Gateway, GatewayClass},
    gie, istio, prometheus,
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{args::Scope, words::Words};

/// Time between two looks.
const AGAIN: Duration = Duration::from_secs(30);
/// Shortest time between two looks, however many doubts there are.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Which optional APIs are installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apis {
    /// GIE's InferencePool.
    pub gie_pools: bool,
    /// Gateway API's HTTPRoute.
    pub routes: bool,
    /// PodMonitor of the Prometheus operator.
    pub pod_monitors: bool,
    /// PrometheusRule of the Prometheus operator.
    pub prometheus_rules: bool,
    /// Envoy Gateway's extension policies, and what goes with them.
    pub envoy_gateway: bool,
    /// Istio's DestinationRule.
    pub destination_rules: bool,
    /// Gateway API's Gateway, of other namespaces as well.
    pub gateways: Reach,
    /// Gateway API's GatewayClass.
    pub gateway_classes: Reach,
    /// Envoy Gateway's ClientTrafficPolicy, of other namespaces as well.
    pub client_policies: Reach,
}

/// How far the operator sees objects that are not its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// They are not installed.
    #[default]
    Absent,
    /// It may not read them.
    Hidden,
    /// In the namespace that it serves.
    Namespace,
    /// Everywhere.
    Cluster,
}

impl Reach {
    /// Whether it reaches the pool's own namespace, or another one.
    pub const fn covers(self, own: bool) -> bool {
        match self {
            Self::Absent | Self::Hidden => false,
            Self::Namespace => own,
            Self::Cluster => true,
        }
    }
}

impl fmt::Display for Apis {
    /// Their resources.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            gie_pools,
            routes,
            pod_monitors,
            prometheus_rules,
            envoy_gateway,
            destination_rules,
            gateways,
            gateway_classes,
            client_policies,
        } = *self;
        let named = [
            (gie_pools, "inferencepools.inference.networking.k8s.io"),
            (routes, "httproutes"),
            (pod_monitors, "podmonitors"),
            (prometheus_rules, "prometheusrules"),
            (envoy_gateway, "envoyextensionpolicies"),
            (destination_rules, "destinationrules"),
            (gateways.covers(true), "gateways"),
            (gateway_classes.covers(false), "gatewayclasses"),
            (client_policies.covers(true), "clienttrafficpolicies"),
        ];
        let mut names = named.into_iter().filter_map(|(is, name)| is.then_some(name));
        let Some(first) = names.next() else {
            return to.write_str("none");
        };
        to.write_str(first)?;
        names.try_for_each(|name| write!(to, ", {name}"))
    }
}

/// Somebody met an API that is not there although it was. Clones are the same; any number of doubts is one look.
#[derive(Clone, Debug, Default)]
pub struct Doubts(Arc<Notify>);

impl Doubts {
    /// Asks for a look.
    pub fn raise(&self) {
        self.0.notify_one();
    }
}

/// Looks for optional APIs.
#[derive(Clone)]
pub struct Prober {
    client: Client,
    scope: Scope,
}

impl Prober {
    /// Asks through this client, for pools of that scope.
    pub fn new(client: Client, scope: Scope) -> Self {
        Self { client, scope }
    }

    /// Looks until shutdown, by the clock and when in doubt, and tells changes.
    pub async fn run(self, apis: watch::Sender<Apis>, doubts: Doubts, token: CancellationToken) {
        loop {
            let before = *apis.borrow();
            let now = self.look(before).await;
            apis.send_if_modified(|apis| std::mem::replace(apis, now) != now);
            let wait = async {
                sleep(AT_ONCE).await;
                tokio::select! {
                    () = doubts.0.notified() => {}
                    () = sleep(AGAIN) => {}
                }
            };
            tokio::select! {
                () = token.cancelled() => return,
                () = wait => {}
            }
        }
    }

    /// One look. Where the API server does not answer, what was known before holds.
    pub async fn look(&self, before: Apis) -> Apis {
        let of = |group: &str, version: &str| format!("{group}/{version}");
        let gateway = self.kinds(&of(gateway::GROUP, "v1")).await;
        let gie = self.kinds(&of(gie::GROUP, "v1")).await;
        let prometheus = self.kinds(&of(prometheus::GROUP, "v1")).await;
        let envoy = self.kinds(&of(envoy_gateway::GROUP, "v1alpha1")).await;
        let istio = self.kinds(&of(istio::GROUP, "v1")).await;
        let has = |kinds: &Option<Vec<String>>, kind: &str, before: bool| {
            kinds
                .as_ref()
                .map_or(before, |kinds| kinds.iter().any(|known| known == kind))
        };
        let had = |reach: Reach| reach != Reach::Absent;
        let gateways = has(&gateway, "Gateway", had(before.gateways));
        let classes = has(&gateway, "GatewayClass", had(before.gateway_classes));
        let policies = has(&envoy, "ClientTrafficPolicy", had(before.client_policies));
        Apis {
            gie_pools: has(&gie, "InferencePool", before.gie_pools),
            routes: has(&gateway, "HTTPRoute", before.routes),
            pod_monitors: has(&prometheus, "PodMonitor", before.pod_monitors),
            prometheus_rules: has(&prometheus, "PrometheusRule", before.prometheus_rules),
            envoy_gateway: has(&envoy, "EnvoyExtensionPolicy", before.envoy_gateway),
            destination_rules: has(&istio, "DestinationRule", before.destination_rules),
            gateways: self
                .reach::<Gateway>(gateways, self.near(), before.gateways)
                .await,
            gateway_classes: self
                .reach::<GatewayClass>(classes, Reach::Hidden, before.gateway_classes)
                .await,
            client_policies: self
                .reach::<ClientTrafficPolicy>(policies, self.near(), before.client_policies)
                .await,
        }
    }

    /// What is seen without rights in the whole cluster.
    const fn near(&self) -> Reach {
        match self.scope {
            Scope::Cluster | Scope::Except(_) => Reach::Hidden,
            Scope::Namespace(_) => Reach::Namespace,
        }
    }

    /// Asks for one object of all namespaces: that says whether it may.
    async fn reach<K>(&self, installed: bool, without: Reach, before: Reach) -> Reach
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        if !installed {
            return Reach::Absent;
        }
        let api = Api::<K>::all(self.client.clone());
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => Reach::Cluster,
            Err(kube::Error::Api(status)) if status.code == 403 => without,
            Err(kube::Error::Api(status)) if status.code == 404 => Reach::Absent,
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), error = %Words(&error), "cannot find out whether a kind may be read");
                before
            }
        }
    }

    /// Kinds of a group's version: none when it is not installed, `None` when nobody knows.
    async fn kinds(&self, version: &str) -> Option<Vec<String>> {
        match self.client.list_api_group_resources(version).await {
            Ok(list) => Some(list.resources.into_iter().map(|resource| resource.kind).collect()),
            Err(kube::Error::Api(status)) if status.code == 404 => Some(Vec::new()),
            Err(error) => {
                tracing::warn!(version, error = %Words(&error), "cannot find out whether an API is installed");
                None
            }
        }
    }
}
