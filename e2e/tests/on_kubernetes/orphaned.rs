//! `kubectl delete --cascade=orphan`: engines stay and serve, and the same pool takes them up again.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::load::{Load, all_served};
use crate::support::{Stage, condition, on_stage};
use crate::upgrade::engines;

/// Kinds that a pool with its own Envoy has.
const KINDS: [(&str, &str); 7] = [
    ("apps/v1", "deployments"),
    ("v1", "services"),
    ("v1", "configmaps"),
    ("v1", "serviceaccounts"),
    ("rbac.authorization.k8s.io/v1", "rolebindings"),
    ("networking.k8s.io/v1", "networkpolicies"),
    ("policy/v1", "poddisruptionbudgets"),
];
const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn a_pool_that_comes_back_takes_up_what_it_left_and_tells_what_is_a_strangers() -> anyhow::Result<()> {
    on_stage("orphaned", 1, async |stage| {
        let cluster = &stage.cluster;
        stage.serve(&stage.pool("p", 1)).await?;
        let before = engines(stage, "p").await?;
        let load = Load::start(stage.envoy("p").await?, Duration::from_secs(1), 80);
        let namespace = stage.namespace.as_str();
        let pool = "inferencepools.lmetric.io/p";
        cluster
            .kubectl(&[
                "delete",
                pool,
                "--cascade=orphan",
                "-n",
                namespace,
                "--timeout=30s",
            ])
            .await?;
        let left = children(stage).await?;
        ensure!(left.len() >= 12, "{left:#?}");
        ensure!(
            left.iter().all(|child| owner(child).is_null()),
            "not orphaned: {left:#?}"
        );

        // two that somebody else takes over: one made anew without our labels, one with all of them
        let budget = stage.path("policy/v1", "poddisruptionbudgets", "p-engine");
        let policy = stage.path("networking.k8s.io/v1", "networkpolicies", "p-engine");
        let mut theirs = cluster.get(&policy).await?;
        for path in [&budget, &policy] {
            cluster.delete(path).await?;
        }
        let none = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p-engine"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"nobody": "has"}}},
        });
        cluster
            .create(&stage.path("policy/v1", "poddisruptionbudgets", ""), &none)
            .await?;
        theirs["metadata"] = json!({"name": "p-engine", "labels": theirs["metadata"]["labels"]});
        cluster
            .create(
                &stage.path("networking.k8s.io/v1", "networkpolicies", ""),
                &theirs,
            )
            .await?;

        cluster.create(&stage.pool_path(""), &stage.pool("p", 1)).await?;
        let told = stage.reason("p", "Degraded", "NameConflict", SOON).await?;
        let message = condition(&told, "Degraded").2;
        for name in ["PodDisruptionBudget p-engine", "NetworkPolicy p-engine"] {
            ensure!(message.contains(name), "{name} is not named: {message}");
        }
        for path in [&budget, &policy] {
            let object = cluster.get(path).await?;
            ensure!(
                owner(&object).is_null(),
                "a stranger's object was taken: {object:#}"
            );
            cluster.delete(path).await?;
        }
        // looked at again within half a minute
        stage.reason("p", "Degraded", "AsExpected", 2 * SOON).await?;
        let pool = stage.ready("p", 1).await?;
        all_served(&load.finish().await?)?;
        let after = engines(stage, "p").await?;
        ensure!(
            before == after,
            "engines were touched: {before:#?}, then {after:#?}"
        );
        for child in children(stage).await? {
            ensure!(
                owner(&child) == &pool["metadata"]["uid"],
                "not the pool's: {child:#}"
            );
        }
        Ok(())
    })
    .await
}

/// Everything that the operator made for the pool.
async fn children(stage: &Stage) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for (version, plural) in KINDS {
        let list = stage.path(version, plural, "");
        found.extend(
            stage
                .cluster
                .list(
                    &list,
                    "lmetric.io/pool=p,app.kubernetes.io/managed-by=lmetric-operator",
                )
                .await?,
        );
    }
    Ok(found)
}

fn owner(object: &Value) -> &Value {
    &object["metadata"]["ownerReferences"][0]["uid"]
}
