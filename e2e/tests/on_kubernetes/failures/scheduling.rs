//! Engines that fit no node, for another want than accelerators.

use serde_json::json;

use super::told::{Fact, Words, told};
use super::{change, healed, make, pool};
use crate::support::on_steady_stage;

const LABEL: &str = "e2e.local/disk";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_label_that_no_node_has_and_too_many_cpus_are_unschedulable() -> anyhow::Result<()> {
    on_steady_stage("unschedulable", 2, async |stage| {
        let mut pool = pool(stage, 1);
        pool["spec"]["placement"] = json!({"nodeSelector": {LABEL: "fast"}});
        make(stage, &pool).await?;
        let conditions = &[("Ready", "False", "Unschedulable"), ("Degraded", "True", "Unschedulable")];
        let words = Words {
            conditions,
            message: &["affinity/selector", "spec.placement", "kubectl describe nodes"],
        };
        told(stage, &Fact::unscheduled(stage, "affinity/selector"), &words).await?;
        let node = lmetric_testkit::cluster::path("v1", "nodes", "", "node1");
        let label = |value| json!({"metadata": {"labels": {LABEL: value}}});
        stage.cluster.merge(&node, &label(json!("fast"))).await?;
        healed(stage, 1).await?;
        stage.cluster.merge(&node, &label(json!(null))).await?;

        let all = json!({"spec": {
            "placement": {"nodeSelector": null}, "resources": {"cpu": "1000"}, "rollout": {"strategy": "Recreate"},
        }});
        change(stage, &all).await?;
        let words = Words {
            conditions,
            message: &["Insufficient cpu", "spec.resources", "kubectl describe nodes"],
        };
        told(stage, &Fact::unscheduled(stage, "Insufficient cpu"), &words).await?;
        change(stage, &json!({"spec": {"resources": {"cpu": "150m"}}})).await?;
        healed(stage, 1).await
    })
    .await
}
