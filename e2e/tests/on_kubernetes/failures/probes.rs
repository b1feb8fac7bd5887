//! Engines that stop answering.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lmetric_testkit::Signal;
use serde_json::{Value, json};

use super::told::{Fact, Words, told};
use super::{healed, pool, pool_with_envoy, serving};
use crate::load::{Load, all_served};
use crate::support::{condition, on_steady_stage, selector};
use crate::watch::Watch;

fn unready(name: &str) -> impl Fn(&Value) -> bool + Send + Sync + 'static {
    let name = name.to_owned();
    move |pod: &Value| pod["metadata"]["name"] == name.as_str() && condition(pod, "Ready").0 == "False"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn an_engine_that_hangs_is_not_ready_then_restarted_and_the_other_one_serves() -> anyhow::Result<()> {
    on_steady_stage("hang", 2, async |stage| {
        serving(stage, &pool_with_envoy(stage, 2)).await?;
        let engines = stage
            .cluster
            .pods(&stage.namespace, &selector("p", "engine"))
            .await?;
        let victim = engines.first().context("an engine")?;
        let watch = Watch::start(stage).await?;
        let load = Load::start(stage.envoy("p").await?, Duration::from_millis(500), 17);
        stage
            .cluster
            .signal(&stage.namespace, &victim.name, "engine", Signal::STOP)
            .await?;
        let words = Words {
            conditions: &[("Degraded", "True", "NotReady"), ("Ready", "True", "Serving")],
            message: &[&victim.name, "readiness probe", "kubectl logs"],
        };
        let fact = Fact::of_pods(stage, "engine", unready(&victim.name));
        told(stage, &fact, &words).await?;
        let left_out = Instant::now();
        // the liveness probe ends it; nobody else does
        stage
            .cluster
            .until_list(
                "the engine that hangs to be restarted",
                Duration::from_mins(1),
                &stage.path("v1", "pods", ""),
                &selector("p", "engine"),
                |pods| {
                    pods.iter().any(|pod| {
                        pod["metadata"]["name"] == victim.name.as_str()
                            && pod["status"]["containerStatuses"][0]["restartCount"] == 1
                    })
                },
            )
            .await?;
        healed(stage, 2).await?;
        let records = load.finish().await?;
        let seen = watch.finish().await?;
        let (before, after): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.began < left_out);
        all_served(&after)?;
        let address = victim.ip.context("an address")?.to_string();
        for record in before.iter().filter(|record| record.error.is_some()) {
            ensure!(
                seen.winners
                    .get(&record.id)
                    .is_none_or(|winner| *winner == address),
                "failed at an engine that was well: {record:?}"
            );
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn readiness_that_is_lost_and_comes_back_is_not_ready_without_a_restart() -> anyhow::Result<()> {
    on_steady_stage("readiness-lost", 1, async |stage| {
        let mut pool = pool(stage, 1);
        pool["spec"]["probes"]["liveness"] = json!({});
        serving(stage, &pool).await?;
        let engines = stage
            .cluster
            .pods(&stage.namespace, &selector("p", "engine"))
            .await?;
        let victim = engines.first().context("an engine")?;
        let hangs = json!({"kind": "hang", "for": "8s"});
        stage.cluster.engine_fault(victim, 8000, &hangs).await?;
        let words = Words {
            conditions: &[("Ready", "False", "NotReady"), ("Degraded", "True", "NotReady")],
            message: &[&victim.name, "readiness probe", "kubectl logs"],
        };
        let fact = Fact::of_pods(stage, "engine", unready(&victim.name));
        told(stage, &fact, &words).await?;
        healed(stage, 1).await?;
        let engines = stage
            .cluster
            .pods(&stage.namespace, &selector("p", "engine"))
            .await?;
        ensure!(
            engines.len() == 1 && engines[0].name == victim.name && engines[0].restarts == 0,
            "the engine was not left alone: {engines:?}"
        );
        Ok(())
    })
    .await
}
