//! Each pool has exactly one of each object that belongs to it, and nothing of ours lives without an owner.

use std::collections::{BTreeMap, BTreeSet};

use lmetric_testkit::cluster::path;
use serde_json::Value;

use crate::fault::Pool;
use crate::fleet::{Fleet, NAMESPACE};

/// What a pool with a standalone Envoy owns: API version, plural, and of which components.
const OWNED: [(&str, &str, &[&str]); 7] = [
    ("v1", "serviceaccounts", &["engine", "picker"]),
    ("v1", "configmaps", &["picker", "envoy"]),
    ("v1", "services", &["engine", "picker", "envoy"]),
    ("apps/v1", "deployments", &["engine", "picker", "envoy"]),
    (
        "policy/v1",
        "poddisruptionbudgets",
        &["engine", "picker", "envoy"],
    ),
    (
        "networking.k8s.io/v1",
        "networkpolicies",
        &["engine", "picker", "envoy"],
    ),
    ("rbac.authorization.k8s.io/v1", "rolebindings", &["picker"]),
];
/// What the cluster's controllers make from these, and collect.
const DERIVED: [(&str, &str); 3] = [
    ("apps/v1", "replicasets"),
    ("v1", "pods"),
    ("discovery.k8s.io/v1", "endpointslices"),
];
const OURS: &str = "lmetric.io/pool";

/// What is wrong with the objects of both pools.
pub(crate) async fn check(fleet: &Fleet) -> anyhow::Result<Vec<String>> {
    let mut uids = BTreeSet::new();
    let mut pools = BTreeMap::new();
    for pool in Pool::ALL {
        let uid = text(&fleet.pool(pool).await?["metadata"]["uid"]);
        uids.insert(uid.clone());
        pools.insert(pool.name(), uid);
    }
    let mut wrong = Vec::new();
    let mut all = Vec::new();
    for (api_version, plural, components) in OWNED {
        let objects = labelled(fleet, api_version, plural).await?;
        wrong.extend(differences(plural, components, &pools, &objects));
        all.extend(objects.into_iter().map(|object| (plural, object)));
    }
    for (api_version, plural) in DERIVED {
        let objects = labelled(fleet, api_version, plural).await?;
        all.extend(objects.into_iter().map(|object| (plural, object)));
    }
    uids.extend(all.iter().map(|(_, object)| text(&object["metadata"]["uid"])));
    wrong.extend(orphans(&all, &uids));
    Ok(wrong)
}

/// What is left of a pool that was deleted.
pub(crate) async fn left_of(fleet: &Fleet, pool: Pool) -> anyhow::Result<Vec<String>> {
    let kinds = OWNED.map(|(api_version, plural, _)| (api_version, plural));
    let mut left = Vec::new();
    for (api_version, plural) in kinds.into_iter().chain(DERIVED) {
        for object in labelled(fleet, api_version, plural).await? {
            if object["metadata"]["labels"][OURS] == pool.name() {
                left.push(format!("{plural}/{}", text(&object["metadata"]["name"])));
            }
        }
    }
    Ok(left)
}

async fn labelled(fleet: &Fleet, api_version: &str, plural: &str) -> anyhow::Result<Vec<Value>> {
    fleet
        .cluster
        .list(&path(api_version, plural, NAMESPACE, ""), OURS)
        .await
}

/// Objects of one kind against what the pools should own of it.
fn differences(
    plural: &str,
    components: &[&str],
    pools: &BTreeMap<&str, String>,
    objects: &[Value],
) -> Vec<String> {
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for pool in pools.keys() {
        wanted.extend(components.iter().map(|component| format!("{pool}-{component}")));
    }
    let mut wrong = Vec::new();
    for object in objects {
        let metadata = &object["metadata"];
        let name = text(&metadata["name"]);
        if !wanted.remove(&name) {
            wrong.push(format!("{plural}/{name} should not be there"));
            continue;
        }
        let pool = text(&metadata["labels"][OURS]);
        let owners = metadata["ownerReferences"].as_array();
        let owner = owners
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true);
        if owner.map(|owner| text(&owner["uid"])) != pools.get(pool.as_str()).cloned() {
            wrong.push(format!("{plural}/{name} is not owned by pool {pool}: {owner:?}"));
        }
    }
    wrong.extend(wanted.iter().map(|name| format!("{plural}/{name} is missing")));
    wrong
}

/// Objects none of whose owners lives.
fn orphans(objects: &[(&str, Value)], uids: &BTreeSet<String>) -> Vec<String> {
    let is_orphan = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        let terminating = object["metadata"]["deletionTimestamp"].is_string();
        !terminating
            && !owners
                .into_iter()
                .flatten()
                .any(|owner| uids.contains(&text(&owner["uid"])))
    };
    objects
        .iter()
        .filter(|(_, object)| is_orphan(object))
        .map(|(plural, object)| {
            format!(
                "{plural}/{} has no living owner",
                text(&object["metadata"]["name"])
            )
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, owner: &str) -> Value {
        json!({"metadata": {
            "name": name,
            "uid": format!("uid-of-{name}"),
            "labels": {OURS: "alpha"},
            "ownerReferences": [{"uid": owner, "controller": true}],
        }})
    }

    #[test]
    fn one_too_many_one_too_few_and_a_foreign_owner_are_told() {
        let pools = BTreeMap::from([("alpha", "a".to_owned())]);
        let fine = [object("alpha-engine", "a"), object("alpha-picker", "a")];
        let of = |objects: &[Value]| differences("services", &["engine", "picker"], &pools, objects);
        assert_eq!(of(&fine), Vec::<String>::new());
        assert_eq!(of(&fine[..1]), ["services/alpha-picker is missing"]);
        let more = [fine[0].clone(), fine[1].clone(), object("alpha-picker-2", "a")];
        assert_eq!(of(&more), ["services/alpha-picker-2 should not be there"]);
        let foreign = [fine[0].clone(), object("alpha-picker", "z")];
        assert!(of(&foreign)[0].contains("is not owned by pool alpha"));
    }

    #[test]
    fn an_orphan_is_an_object_whose_owners_are_gone() {
        let uids = BTreeSet::from(["a".to_owned()]);
        let kept = ("pods", object("kept", "a"));
        let left = ("pods", object("left", "gone"));
        let mut leaving = ("pods", object("leaving", "gone"));
        leaving.1["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(
            orphans(&[kept, left, leaving], &uids),
            ["pods/left has no living owner"]
        );
    }
}
