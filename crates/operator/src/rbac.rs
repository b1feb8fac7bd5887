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
    right("gateway.networking.k8s.io", "httproutes", OWN),
    right("inference.networking.k8s.io", "inferencepools", OWN),
    right("lmetric.io", "inferencepools", READ),
    right("lmetric.io", "inferencepools/finalizers", &["update"]),
    right("lmetric.io", "inferencepools/status", &["patch"]),
    right("monitoring.coreos.com", "podmonitors", OWN),
    right("monitoring.coreos.com", "prometheusrules", OWN),
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
    fn the_table_is_sorted_and_asks_for_no_secrets() {
        let keys: Vec<_> = POOLS.iter().map(|right| (right.group, right.resource)).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(keys, sorted);
        for right in POOLS.iter().chain(LEADER) {
            assert!(!right.resource.starts_with("secrets"), "{right:?}");
            assert!(right.verbs.is_sorted(), "{right:?}");
            assert!(right.verbs.iter().all(|verb| *verb != "*"), "{right:?}");
        }
    }
}
