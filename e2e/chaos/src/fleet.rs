//! The two pools under test: made, looked at, known to be whole.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use lmetric_testkit::Client;
use lmetric_testkit::cluster::{
    Cluster, PodState, SYSTEM, path, pool_path, selector, serves_with, small_pool,
};
use serde_json::{Value, json};

use crate::fault::{Component, Pool};

/// Namespace of the pools.
pub(crate) const NAMESPACE: &str = "chaos";
/// Admin port of a picker.
pub(crate) const ADMIN: u16 = 9_090;
/// Port of an engine.
pub(crate) const ENGINE: u16 = 8_000;
/// The node that crashes, loses its kubelet, is drained. The control plane's way to ClusterIPs leads through the other.
pub(crate) const NODE: &str = "node2";
const OTHER_NODE: &str = "node1";
const STARTING: Duration = Duration::from_mins(2);

/// The cluster and what this program made in it.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    pub(crate) cluster: Cluster,
}

impl Fleet {
    /// Installs the chart and makes both pools.
    pub(crate) async fn start(cluster: Cluster) -> anyhow::Result<Self> {
        cluster.install_chart().await?;
        cluster
            .create(
                &path("v1", "namespaces", "", ""),
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
            )
            .await?;
        let fleet = Self { cluster };
        for pool in Pool::ALL {
            let object = fleet.object(pool);
            fleet.cluster.create(&pool_path(NAMESPACE, ""), &object).await?;
        }
        fleet.wait_whole(STARTING).await?;
        Ok(fleet)
    }

    /// What is applied for a pool: probes that see a fault within seconds, two pickers and two Envoys.
    fn object(&self, pool: Pool) -> Value {
        let mut object = small_pool(
            self.cluster.images(),
            NAMESPACE,
            pool.name(),
            pool.engines() as u32,
        );
        let spec = &mut object["spec"];
        spec["picker"]["replicas"] = json!(2);
        spec["gateway"]["standalone"]["replicas"] = json!(2);
        spec["probes"] = json!({
            "startup": {"periodSeconds": 1},
            "readiness": {"periodSeconds": 2, "timeoutSeconds": 3, "failureThreshold": 3},
        });
        if pool == Pool::Alpha {
            spec["rollout"] = json!({"strategy": "RollingUpdate", "maxSurge": 0, "maxUnavailable": 1});
        }
        object
    }

    /// The pool's object as it is.
    pub(crate) async fn pool(&self, pool: Pool) -> anyhow::Result<Value> {
        self.cluster.get(&pool_path(NAMESPACE, pool.name())).await
    }

    /// Changes a pool's spec.
    pub(crate) async fn patch(&self, pool: Pool, spec: &Value) -> anyhow::Result<()> {
        let patch = json!({"spec": spec});
        self.cluster
            .merge(&pool_path(NAMESPACE, pool.name()), &patch)
            .await?;
        Ok(())
    }

    /// Pods of one kind.
    pub(crate) async fn pods(&self, pool: Pool, component: Component) -> anyhow::Result<Vec<PodState>> {
        self.cluster
            .pods(NAMESPACE, &selector(pool.name(), component.label()))
            .await
    }

    /// A client of the pool's Service.
    pub(crate) async fn client(&self, pool: Pool) -> anyhow::Result<Client> {
        let name = format!("{}-envoy", pool.name());
        self.cluster.service(NAMESPACE, &name).await
    }

    /// Fails with the first thing that is not as it was in the beginning.
    pub(crate) async fn whole(&self) -> anyhow::Result<()> {
        for node in [OTHER_NODE, NODE] {
            let ready = self.cluster.node_ready(node).await?;
            ensure!(ready == "True", "{node} is not ready: {ready}");
        }
        for pool in Pool::ALL {
            let object = self.pool(pool).await?;
            ensure!(
                serves_with(&object, pool.engines()),
                "pool {} has not converged: spec.replicas {}, status {}",
                pool.name(),
                object["spec"]["replicas"],
                object["status"]
            );
            for component in Component::ALL {
                let pods = self.pods(pool, component).await?;
                all_ready(
                    &pods,
                    component.count(pool) as usize,
                    &format!("{} {}", pool.name(), component.label()),
                )?;
            }
        }
        let operators = self
            .cluster
            .pods(SYSTEM, "app.kubernetes.io/name=lmetric")
            .await?;
        all_ready(&operators, 2, "operator")?;
        self.cluster.leader().await?;
        let dns = self.cluster.pods("kube-system", "k8s-app=kube-dns").await?;
        all_ready(&dns, 1, "DNS")
    }

    /// Waits until the fleet is whole.
    pub(crate) async fn wait_whole(&self, limit: Duration) -> anyhow::Result<()> {
        let every = Duration::from_millis(500);
        lmetric_testkit::poll("the fleet to be whole", limit, every, || async {
            match tokio::time::timeout(Duration::from_secs(10), self.whole()).await {
                Ok(whole) => whole,
                Err(_) => bail!("the API server does not answer"),
            }
        })
        .await?;
        Ok(())
    }

    /// Moves pods to [`NODE`] until it holds some of each kind, so that what happens to it matters: a drain leaves it empty, and
    /// nothing moves back by itself. Pods are deleted with their grace, which must cost nothing.
    pub(crate) async fn populate(&self) -> anyhow::Result<()> {
        let mut leaving = Vec::new();
        for pool in Pool::ALL {
            for component in Component::ALL {
                let pods = self.pods(pool, component).await?;
                if !pods.iter().any(|pod| pod.node.as_deref() == Some(NODE)) {
                    leaving.extend(pods.iter().take(pods.len() / 2).map(|pod| pod.name.clone()));
                }
            }
        }
        if leaving.is_empty() {
            return Ok(());
        }
        self.cluster.kubectl(&["cordon", OTHER_NODE]).await?;
        let moved = async {
            for pod in &leaving {
                self.cluster.delete(&path("v1", "pods", NAMESPACE, pod)).await?;
            }
            self.wait_whole(STARTING).await
        };
        let moved = moved.await;
        self.cluster.kubectl(&["uncordon", OTHER_NODE]).await?;
        moved
    }

    /// The ready pod that an index means.
    pub(crate) async fn choose(
        &self,
        pool: Pool,
        component: Component,
        index: u8,
    ) -> anyhow::Result<PodState> {
        let mut pods = self.pods(pool, component).await?;
        pods.retain(|pod| pod.ready && !pod.terminating && pod.ip.is_some());
        let at = usize::from(index) % pods.len().max(1);
        pods.into_iter()
            .nth(at)
            .with_context(|| format!("{} has no ready {}", pool.name(), component.label()))
    }
}

fn all_ready(pods: &[PodState], count: usize, what: &str) -> anyhow::Result<()> {
    ensure!(
        pods.len() == count && pods.iter().all(|pod| pod.ready && !pod.terminating),
        "{what} pods, {count} wanted: {}",
        pods.iter()
            .map(|pod| format!("{} ready={} terminating={}", pod.name, pod.ready, pod.terminating))
            .collect::<Vec<_>>()
            .join(", ")
    );
    Ok(())
}
