//! No container restarts unless a fault ended it.

use std::collections::BTreeMap;

use lmetric_testkit::cluster::{Cluster, SYSTEM, path};
use serde_json::Value;

use crate::cost::Happened;
use crate::fault::Fault;
use crate::fleet::{NAMESPACE, NODE};

/// Restarts after which a pod is replaced: the kubelet waits for 10 s before the second restart, 20 s, 40 s, 80 s, … before those that follow,
/// and forgets that only after ten quiet minutes.
const WORN: u64 = 3;

/// Pod and container.
type Container = (String, String);

/// Restarts of each container, as of the last look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restarts(BTreeMap<Container, Seen>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    namespace: String,
    count: u64,
    node: String,
}

impl Restarts {
    /// Tells of restarts since the last look that none of `faults` explains, those that happened since then.
    pub(crate) async fn look(
        &mut self,
        cluster: &Cluster,
        faults: &[Happened],
    ) -> anyhow::Result<Vec<String>> {
        let mut now = BTreeMap::new();
        for namespace in [NAMESPACE, SYSTEM, "kube-system"] {
            for pod in cluster.list(&path("v1", "pods", namespace, ""), "").await? {
                now.extend(counts(&pod));
            }
        }
        let wrong = unexplained(&self.0, &now, faults);
        self.0 = now;
        Ok(wrong)
    }

    /// Paths of the pods whose next restart would have to wait for long.
    pub(crate) fn worn(&self) -> Vec<String> {
        let worn = self.0.iter().filter(|(_, seen)| seen.count >= WORN);
        worn.map(|((pod, _), seen)| path("v1", "pods", &seen.namespace, pod))
            .collect()
    }
}

fn counts(pod: &Value) -> Vec<(Container, Seen)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let statuses = pod["status"]["containerStatuses"].as_array();
    statuses
        .into_iter()
        .flatten()
        .map(|status| {
            let seen = Seen {
                namespace: text(&pod["metadata"]["namespace"]),
                count: status["restartCount"].as_u64().unwrap_or_default(),
                node: text(&pod["spec"]["nodeName"]),
            };
            ((text(&pod["metadata"]["name"]), text(&status["name"])), seen)
        })
        .collect()
}

fn unexplained(
    before: &BTreeMap<Container, Seen>,
    now: &BTreeMap<Container, Seen>,
    faults: &[Happened],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((pod, container), seen) in now {
        let known = before
            .get(&(pod.clone(), container.clone()))
            .map_or(0, |seen| seen.count);
        if seen.count > known && !faults.iter().any(|fault| explains(fault, pod, &seen.node)) {
            wrong.push(format!(
                "{container} of {pod} restarted, {known} → {}",
                seen.count
            ));
        }
    }
    wrong
}

fn explains(happened: &Happened, pod: &str, node: &str) -> bool {
    match &happened.fault {
        Fault::Kill { .. } | Fault::KillOperator | Fault::KillDns => happened.victim == pod,
        Fault::CrashNode { .. } => node == NODE,
        // an operator that cannot renew its Lease ends, lest two write
        Fault::StopApi { .. } => pod.starts_with("lmetric-"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::At;
    use crate::fault::{Component, Lasts, Pool};

    fn seen(count: u64, node: &str) -> Seen {
        Seen {
            namespace: NAMESPACE.to_owned(),
            count,
            node: node.to_owned(),
        }
    }

    fn happened(fault: Fault) -> Happened {
        Happened {
            fault,
            at: At(0),
            undone: None,
            settled: None,
            victim: "alpha-picker-1".to_owned(),
            engines: Vec::new(),
            bereft: Vec::new(),
        }
    }

    #[test]
    fn a_restart_is_explained_by_the_fault_that_hit_its_pod() {
        let key = |pod: &str| (pod.to_owned(), "picker".to_owned());
        let before = BTreeMap::from([
            (key("alpha-picker-1"), seen(1, "node1")),
            (key("alpha-picker-2"), seen(0, NODE)),
        ]);
        let now = BTreeMap::from([
            (key("alpha-picker-1"), seen(2, "node1")),
            (key("alpha-picker-2"), seen(1, NODE)),
        ]);
        let kill = happened(Fault::Kill {
            pool: Pool::Alpha,
            component: Component::Picker,
            index: 0,
        });
        let crash = happened(Fault::CrashNode { lasts: Lasts(30) });
        let count = |faults: &[Happened]| unexplained(&before, &now, faults).len();
        assert_eq!(count(&[]), 2);
        assert_eq!(count(std::slice::from_ref(&kill)), 1);
        assert_eq!(count(&[kill, crash]), 0);
        assert_eq!(unexplained(&now, &now, &[]), Vec::<String>::new());
    }
}
