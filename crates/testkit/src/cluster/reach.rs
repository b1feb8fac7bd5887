//! Pods and services as addresses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use super::{Cluster, path};
use crate::client::Client;

/// What matters of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    /// Its name.
    pub name: String,
    /// Its address, once it has one.
    pub ip: Option<IpAddr>,
    /// Its node, once it is scheduled.
    pub node: Option<String>,
    /// Its ready condition.
    pub ready: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// The image of its first container.
    pub image: String,
    /// Restarts of all its containers.
    pub restarts: u64,
}

impl PodState {
    fn of(pod: &Value) -> Self {
        let containers = pod["status"]["containerStatuses"].as_array();
        let conditions = pod["status"]["conditions"].as_array();
        Self {
            name: pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            ip: pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok()),
            node: pod["spec"]["nodeName"].as_str().map(str::to_owned),
            ready: conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
            terminating: pod["metadata"]["deletionTimestamp"].is_string(),
            image: pod["spec"]["containers"][0]["image"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            restarts: containers
                .into_iter()
                .flatten()
                .filter_map(|container| container["restartCount"].as_u64())
                .sum(),
        }
    }
}

impl Cluster {
    /// Pods by label selector, sorted by name.
    pub async fn pods(&self, namespace: &str, selector: &str) -> anyhow::Result<Vec<PodState>> {
        let pods = self.list(&path("v1", "pods", namespace, ""), selector).await?;
        Ok(pods.iter().map(PodState::of).collect())
    }

    /// Waits until exactly `count` pods match, each ready and none terminating.
    pub async fn ready_pods(
        &self,
        namespace: &str,
        selector: &str,
        count: usize,
        limit: Duration,
    ) -> anyhow::Result<Vec<PodState>> {
        let what = format!("{count} ready pods with {selector} in {namespace}");
        let pods = self
            .until_list(
                &what,
                limit,
                &path("v1", "pods", namespace, ""),
                selector,
                |pods| {
                    pods.len() == count
                        && pods
                            .iter()
                            .map(PodState::of)
                            .all(|pod| pod.ready && !pod.terminating)
                },
            )
            .await?;
        Ok(pods.iter().map(PodState::of).collect())
    }

    /// A client of a pod's port.
    pub fn pod(&self, pod: &PodState, port: u16) -> anyhow::Result<Client> {
        let ip = pod
            .ip
            .with_context(|| format!("pod {} has no address", pod.name))?;
        Ok(Client::new(SocketAddr::new(ip, port)))
    }

    /// A client of a Service with an address of its own, at its first port.
    pub async fn service(&self, namespace: &str, name: &str) -> anyhow::Result<Client> {
        let service = self.get(&path("v1", "services", namespace, name)).await?;
        let ip: IpAddr = service["spec"]["clusterIP"]
            .as_str()
            .and_then(|ip| ip.parse().ok())
            .with_context(|| format!("service {namespace}/{name} has no address of its own"))?;
        let port = service["spec"]["ports"][0]["port"].as_u64().context("no port")?;
        Ok(Client::new(SocketAddr::new(ip, port as u16)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_ready_by_its_condition_alone() {
        let pod = json!({
            "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "node1", "containers": [{"image": "e2e.local/vllm:1"}]},
            "status": {
                "podIP": "10.244.1.7",
                "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
                "containerStatuses": [{"restartCount": 2}, {"restartCount": 1}],
            },
        });
        let expected = PodState {
            name: "a".to_owned(),
            ip: Some("10.244.1.7".parse().unwrap()),
            node: Some("node1".to_owned()),
            ready: true,
            terminating: true,
            image: "e2e.local/vllm:1".to_owned(),
            restarts: 3,
        };
        assert_eq!(PodState::of(&pod), expected);
        assert!(!PodState::of(&json!({"metadata": {"name": "b"}})).ready);
    }
}
