//! What goes with a pool, and what stays.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::support::{Stage, condition, on_stage};

const OWNED: [(&str, &str); 11] = [
    ("apps/v1", "deployments"),
    ("apps/v1", "replicasets"),
    ("v1", "pods"),
    ("v1", "services"),
    ("v1", "configmaps"),
    ("v1", "serviceaccounts"),
    ("v1", "persistentvolumeclaims"),
    ("rbac.authorization.k8s.io/v1", "rolebindings"),
    ("policy/v1", "poddisruptionbudgets"),
    ("networking.k8s.io/v1", "networkpolicies"),
    ("discovery.k8s.io/v1", "endpointslices"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn deleting_a_pool_removes_what_it_owned_and_nothing_else() -> anyhow::Result<()> {
    on_stage("deletion", 1, async |stage| {
        let stranger = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "p-notes", "labels": {"lmetric.io/pool": "p", "app.kubernetes.io/name": "lmetric"}},
            "data": {"kept": "yes"},
        });
        stage.cluster.create(&stage.path("v1", "configmaps", ""), &stranger).await?;
        let before = names(stage).await?;
        stage.serve(&stage.pool("p", 1)).await?;
        let during = names(stage).await?;
        ensure!(during.len() >= before.len() + 12, "it owns little: {during:?}");
        stage.cluster.delete(&stage.pool_path("p")).await?;
        stage.cluster.gone(&stage.pool_path("p"), Duration::from_secs(20)).await?;
        let limit = Duration::from_mins(1);
        let what = "everything that the pool owned to be gone";
        lmetric_testkit::poll(what, limit, Duration::from_millis(500), || async {
            let after = names(stage).await?;
            if after == before { Ok(()) } else { Err(anyhow::anyhow!("{after:?}")) }
        })
        .await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn a_strangers_service_of_the_same_name_is_a_conflict_and_stays() -> anyhow::Result<()> {
    on_stage("conflict", 1, async |stage| {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "p-envoy"},
            "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 8080}]},
        });
        let made = stage
            .cluster
            .create(&stage.path("v1", "services", ""), &service)
            .await?;
        stage
            .cluster
            .create(&stage.pool_path(""), &stage.pool("p", 1))
            .await?;
        let pool = stage
            .reason("p", "Degraded", "NameConflict", Duration::from_secs(30))
            .await?;
        let (_, _, message) = condition(&pool, "Degraded");
        ensure!(
            message.contains("p-envoy"),
            "the message does not name it: {message}"
        );
        let now = stage
            .cluster
            .get(&stage.path("v1", "services", "p-envoy"))
            .await?;
        for part in ["spec", "metadata"] {
            ensure!(
                now[part] == made[part],
                "the stranger's {part} changed: {}",
                now[part]
            );
        }
        // its owner removes it, and the pool goes on by itself
        stage
            .cluster
            .delete(&stage.path("v1", "services", "p-envoy"))
            .await?;
        stage.ready("p", 1).await?;
        Ok(())
    })
    .await
}

/// Everything in the namespace, Events and what Kubernetes itself puts there apart.
pub(crate) async fn names(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for (api_version, plural) in OWNED {
        for object in stage
            .cluster
            .list(&stage.path(api_version, plural, ""), "")
            .await?
        {
            let name = object["metadata"]["name"].as_str().context("a name")?;
            if !own(&object, name) {
                names.push(format!("{plural}/{name}"));
            }
        }
    }
    names.sort();
    Ok(names)
}

fn own(object: &Value, name: &str) -> bool {
    name == "kube-root-ca.crt"
        || (object["kind"] == "ServiceAccount" || object["metadata"]["ownerReferences"].is_null())
            && name == "default"
}
