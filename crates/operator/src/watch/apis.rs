//! APIs that a cluster may lack: looked for at the start and again and again, so that installing one needs no restart.

use std::{fmt, time::Duration};

use kube::Client;
use lmetric_api::foreign::{envoy_gateway, gateway, gie, prometheus};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::words::Words;

/// Time between two looks.
const AGAIN: Duration = Duration::from_secs(30);

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
    /// Envoy Gateway's extension policies.
    pub envoy_gateway: bool,
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
        } = *self;
        let named = [
            (gie_pools, "inferencepools.inference.networking.k8s.io"),
            (routes, "httproutes"),
            (pod_monitors, "podmonitors"),
            (prometheus_rules, "prometheusrules"),
            (envoy_gateway, "envoyextensionpolicies"),
        ];
        let mut names = named.into_iter().filter_map(|(is, name)| is.then_some(name));
        let Some(first) = names.next() else {
            return to.write_str("none");
        };
        to.write_str(first)?;
        names.try_for_each(|name| write!(to, ", {name}"))
    }
}

/// Looks for optional APIs.
#[derive(Clone)]
pub struct Prober {
    client: Client,
}

impl Prober {
    /// Asks through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Looks until shutdown, and tells changes.
    pub async fn run(self, apis: watch::Sender<Apis>, token: CancellationToken) {
        loop {
            let before = *apis.borrow();
            let now = self.look(before).await;
            apis.send_if_modified(|apis| std::mem::replace(apis, now) != now);
            tokio::select! {
                () = token.cancelled() => return,
                () = sleep(AGAIN) => {}
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
        let has = |kinds: &Option<Vec<String>>, kind: &str, before: bool| {
            kinds
                .as_ref()
                .map_or(before, |kinds| kinds.iter().any(|known| known == kind))
        };
        Apis {
            gie_pools: has(&gie, "InferencePool", before.gie_pools),
            routes: has(&gateway, "HTTPRoute", before.routes),
            pod_monitors: has(&prometheus, "PodMonitor", before.pod_monitors),
            prometheus_rules: has(&prometheus, "PrometheusRule", before.prometheus_rules),
            envoy_gateway: has(&envoy, "EnvoyExtensionPolicy", before.envoy_gateway),
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
