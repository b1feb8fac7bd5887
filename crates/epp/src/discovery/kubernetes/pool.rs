//! Which pods and ports a GIE InferencePool names. The object may be anybody's; of either of its two versions.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt};
use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
    runtime::{WatchStreamExt, watcher},
};
use lmetric_api::{
    Pods,
    foreign::gie::{GROUP, InferencePoolSpec},
};
use serde::Deserialize;
use serde_json::Value;

use super::{Access, retry::Retry};

/// Group of the version before 1.
pub const OLD_GROUP: &str = "inference.networking.x-k8s.io";
const PLURAL: &str = "inferencepools";
/// A pool has at most as many ports.
const MOST_PORTS: usize = 8;

/// Name of a GIE InferencePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRef {
    /// API group.
    pub group: String,
    /// Namespace; its pods are in the same.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for PoolRef {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            group,
            namespace,
            name,
        } = self;
        write!(to, "{PLURAL}.{group} {namespace}/{name}")
    }
}

/// A pool that names no pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// It selects all pods or none.
    #[error("its selector has no labels; write spec.selector.matchLabels")]
    NoSelector,
    /// It has no port, or one that does not exist.
    #[error("it has no port from 1 to 65535, or more than {MOST_PORTS}; correct spec.targetPorts")]
    Ports,
    /// It is something else.
    #[error("its spec cannot be read ({0}); an InferencePool of v1 or v1alpha2 is expected")]
    Unreadable(String),
}

/// The version before 1.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldSpec {
    selector: BTreeMap<String, String>,
    target_port_number: i32,
}

/// Pods and ports of a pool's spec.
pub(super) fn pods(spec: &Value) -> Result<Pods, PoolError> {
    let unreadable = |error: serde_json::Error| PoolError::Unreadable(error.to_string());
    let (selector, ports) = if spec.get("targetPortNumber").is_some() {
        let OldSpec {
            selector,
            target_port_number,
        } = OldSpec::deserialize(spec).map_err(unreadable)?;
        (selector, vec![target_port_number])
    } else {
        let spec = InferencePoolSpec::deserialize(spec).map_err(unreadable)?;
        let ports = spec.target_ports.iter().map(|port| port.number).collect();
        (spec.selector.match_labels, ports)
    };
    if selector.is_empty() {
        return Err(PoolError::NoSelector);
    }
    let ports: Option<Vec<u16>> = ports
        .into_iter()
        .map(|port| u16::try_from(port).ok().filter(|port| *port > 0))
        .collect();
    match ports {
        Some(ports) if (1..=MOST_PORTS).contains(&ports.len()) => Ok(Pods { selector, ports }),
        _ => Err(PoolError::Ports),
    }
}

/// The pool's pods whenever the object changes; `None` when there is no such object. A pool that cannot be read is passed
/// over: what it said before stays.
pub(super) fn watch(
    client: Client,
    pool: PoolRef,
    access: Access,
) -> impl Stream<Item = Option<Pods>> + Send {
    let version = if pool.group == OLD_GROUP { "v1alpha2" } else { "v1" };
    let kind = GroupVersionKind::gvk(&pool.group, version, "InferencePool");
    let resource = ApiResource::from_gvk_with_plural(&kind, PLURAL);
    let api: Api<DynamicObject> = Api::namespaced_with(client, &pool.namespace, &resource);
    watcher::watch_object(api, &pool.name)
        .backoff(Retry::default())
        .filter_map(move |seen| {
            if seen.is_ok() {
                access.heard(&pool.to_string());
            }
            let said = match seen {
                Ok(Some(object)) => match pods(&object.data["spec"]) {
                    Ok(pods) => Some(Some(pods)),
                    Err(error) => {
                        tracing::error!(%pool, %error, "the pool cannot be used; its pods stay what they were");
                        None
                    }
                },
                Ok(None) => {
                    tracing::warn!(%pool, "there is no such pool; create it, or correct --pool-name, --pool-namespace and --pool-group");
                    Some(None)
                }
                Err(error) => {
                    super::failed(&pool.to_string(), &error, &access);
                    None
                }
            };
            futures::future::ready(said)
        })
}

/// The group that `--pool-group` stands for when it is not given.
pub fn default_group() -> String {
    GROUP.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_versions_of_a_pool_name_pods_and_ports() {
        let v1 = json!({
            "selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": 8000}, {"number": 8001}],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
        });
        let old =
            json!({"selector": {"app": "vllm"}, "targetPortNumber": 8000, "extensionRef": {"name": "epp"}});
        let selector = BTreeMap::from([("app".to_owned(), "vllm".to_owned())]);
        for (spec, ports) in [(v1, vec![8000, 8001]), (old, vec![8000])] {
            let selector = selector.clone();
            assert_eq!(pods(&spec), Ok(Pods { selector, ports }));
        }
    }

    #[test]
    fn a_pool_without_labels_or_ports_says_what_it_lacks() {
        let labels = json!({"matchLabels": {"app": "vllm"}});
        for (spec, words) in [
            (json!({"targetPorts": [{"number": 8000}]}), "matchLabels"),
            (json!({"selector": labels}), "targetPorts"),
            (
                json!({"selector": labels, "targetPorts": [{"number": 0}]}),
                "targetPorts",
            ),
            (
                json!({"selector": labels, "targetPorts": [{"number": 65536}]}),
                "targetPorts",
            ),
            (json!({"selector": labels, "targetPorts": "8000"}), "v1alpha2"),
            (json!({"selector": {}, "targetPortNumber": 8000}), "matchLabels"),
            (Value::Null, "v1alpha2"),
        ] {
            let error = pods(&spec).expect_err("no pods").to_string();
            assert!(error.contains(words), "{spec}: {error}");
        }
    }
}
