//! The pool's count belongs to whoever writes its scale subresource.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use crate::support::on_stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn kubectl_scale_and_an_autoscaler_set_the_count_and_keep_it() -> anyhow::Result<()> {
    on_stage("scale", 3, async |stage| {
        stage.serve(&stage.pool("p", 1)).await?;
        let namespace = stage.namespace.as_str();
        stage
            .cluster
            .kubectl(&["scale", "inferencepools.lmetric.io/p", "--replicas=2", "-n", namespace])
            .await?;
        stage.ready("p", 2).await?;
        let scaler = json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "lmetric.io/v1alpha1", "kind": "InferencePool", "name": "p"},
                "minReplicas": 3,
                "maxReplicas": 3,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
            },
        });
        let list = stage.path("autoscaling/v2", "horizontalpodautoscalers", "");
        stage.cluster.create(&list, &scaler).await?;
        stage.ready("p", 3).await?;
        // two rounds of the autoscaler; a fight would show
        tokio::time::sleep(Duration::from_secs(10)).await;
        let pool = stage.cluster.get(&stage.pool_path("p")).await?;
        ensure!(pool["spec"]["replicas"] == 3, "the operator changed the count: {}", pool["spec"]["replicas"]);
        ensure!(
            pool["status"]["selector"].as_str().is_some_and(|selector| selector.contains("lmetric.io/pool=p")),
            "no selector in {}",
            pool["status"]
        );
        Ok(())
    })
    .await
}
