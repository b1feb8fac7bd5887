//! Every right that the operator uses. The chart's roles are compared with this table by a test.
//!
//! No `secrets` at all: a missing Secret is told by the kubelet. `bind` on the picker's ClusterRole only, so that the
//! operator can hand out these rights without holding them. `inferencepools/finalizers` is what OpenShift asks of whoever
//! sets blocking owner references.

/// Rights on one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural, with subresource.
    pub resource: &'static str,
    /// Verbs, sorted.
    pub verbs: &'static [&'static str],
    /// Names that the right is limited to; all if empty.
    pub names: &'static [&'static str],
}

const fn right(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Right {
    Right {
        group,
        resource,
        verbs,
        names: &[],
    }
}

const READ: &[&str] = &["get", "list", "watch"];
const OWN: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];

/// Rights in every namespace that the operator works in, sorted by group and resource.
pub const POOLS: &[Right] = &[
    right("", "configmaps", OWN),
    right("", "events", &["list"]),
    right("", "persistentvolumeclaims", OWN),
    right("", "pods", READ),
    right("", "serviceaccounts", OWN),
    right("", "services", OWN),
    right("apps", "deployments", OWN),
    right("apps", "replicasets", READ),
    right("events.k8s.io", "events", &["create", "patch"]),
    right("gateway.envoyproxy.io", "backends", OWN),
    right("gateway.envoyproxy.io", "backendtrafficpolicies", OWN),
    right("gateway.envoyproxy.io", "clienttrafficpolicies", READ),
    right("gateway.envoyproxy.io", "envoyextensionpolicies", OWN),
    right("gateway.envoyproxy.io", "httproutefilters", OWN),
    right("gateway.networking.k8s.io", "gateways", READ),
    right("gateway.networking.k8s.io", "httproutes", OWN),
    right("inference.networking.k8s.io", "inferencepools", OWN),
    right("lmetric.io", "inferencepools", READ),
    right("lmetric.io", "inferencepools/finalizers", &["update"]),
    right("lmetric.io", "inferencepools/status", &["patch"]),
    right("monitoring.coreos.com", "podmonitors", OWN),
    right("monitoring.coreos.com", "prometheusrules", OWN),
    right("networking.istio.io", "destinationrules", OWN),
    right("networking.k8s.io", "networkpolicies", OWN),
    right("policy", "poddisruptionbudgets", OWN),
    Right {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        verbs: &["bind"],
        names: &["lmetric-picker"],
    },
    right("rbac.authorization.k8s.io", "rolebindings", OWN),
];

/// Rights in the whole cluster, which an operator of all namespaces has, and one of a single namespace where its chart's
/// `rbac.clusterReads` gives them: classes have no namespace, and Gateways are mostly in one of their own.
pub const CLUSTER: &[Right] = &[
    right("", "nodes", READ),
    right("gateway.envoyproxy.io", "clienttrafficpolicies", READ),
    right("gateway.networking.k8s.io", "gatewayclasses", READ),
    right("gateway.networking.k8s.io", "gateways", READ),
];

/// Rights in the operator's own namespace.
pub const LEADER: &[Right] = &[right(
    "coordination.k8s.io",
    "leases",
    &["create", "get", "update"],
)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_and_ask_for_no_secrets() {
        for table in [POOLS, CLUSTER, LEADER] {
            let keys: Vec<_> = table.iter().map(|right| (right.group, right.resource)).collect();
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(keys, sorted);
            for right in table {
                assert!(!right.resource.starts_with("secrets"), "{right:?}");
                assert!(right.verbs.is_sorted(), "{right:?}");
                assert!(right.verbs.iter().all(|verb| *verb != "*"), "{right:?}");
            }
        }
    }

    #[test]
    fn what_is_somebody_elses_is_only_read() {
        for resource in [
            "gatewayclasses",
            "gateways",
            "clienttrafficpolicies",
            "nodes",
            "pods",
        ] {
            let rights = POOLS
                .iter()
                .chain(CLUSTER)
                .filter(|right| right.resource == resource);
            assert!(rights.clone().count() > 0, "{resource}");
            for right in rights {
                assert_eq!(right.verbs, READ, "{resource}");
            }
        }
    }

    /// The manifests hold what the chart renders (`make check-generated`), so that their roles speak for the chart's.
    #[test]
    fn the_roles_of_the_manifests_are_these_tables() {
        let file = crate::testing::repository().join("manifests/rbac/rbac.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let documents: Vec<serde_json::Value> = text
            .split("\n---")
            .filter_map(|document| serde_yaml::from_str(document).ok())
            .collect();
        for (name, table) in [
            ("lmetric-operator", POOLS),
            ("lmetric-operator-cluster", CLUSTER),
            ("lmetric-operator-leader", LEADER),
        ] {
            let role = documents
                .iter()
                .find(|object| object["metadata"]["name"] == name && object["rules"].is_array())
                .unwrap_or_else(|| panic!("no role {name} in {}", file.display()));
            assert_eq!(written(role), told(table), "{name}");
        }
    }

    fn told(table: &[Right]) -> Vec<String> {
        let line = |right: &Right| {
            format!(
                "{}/{} {:?} {:?}",
                right.group, right.resource, right.verbs, right.names
            )
        };
        let mut lines: Vec<_> = table.iter().map(line).collect();
        lines.sort();
        lines
    }

    fn written(role: &serde_json::Value) -> Vec<String> {
        let words = |list: &serde_json::Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.filter_map(|word| word.as_str().map(str::to_owned)).collect()
        };
        let mut lines = Vec::new();
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    let (verbs, names) = (words(&rule["verbs"]), words(&rule["resourceNames"]));
                    lines.push(format!("{group}/{resource} {verbs:?} {names:?}"));
                }
            }
        }
        lines.sort();
        lines
    }
}
