//! Engines that start slowly, and too slowly.

use anyhow::ensure;

use super::told::{Fact, Words, told};
use super::{change, healed, make, new_flags, pool, with_flags};
use crate::support::on_steady_stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_slow_start_is_starting_with_its_limit_and_no_trouble() -> anyhow::Result<()> {
    on_steady_stage("slow-start", 1, async |stage| {
        let mut pool = pool(stage, 1);
        with_flags(&mut pool, "--fault kind=slow-start,for=8s");
        make(stage, &pool).await?;
        let fact = Fact::of_pods(stage, "engine", |pod| {
            let engine = &pod["status"]["containerStatuses"][0];
            engine["state"]["running"].is_object() && engine["started"] == false
        });
        let words = Words {
            conditions: &[
                ("Ready", "False", "Starting"),
                ("Degraded", "False", "AsExpected"),
                ("Progressing", "True", "Starting"),
            ],
            message: &[
                "p-engine-",
                "loads its model: less than a minute of at most 1 min",
            ],
        };
        told(stage, &fact, &words).await?;
        healed(stage, 1).await?;
        let events = stage.path("events.k8s.io/v1", "events", "");
        for event in stage.cluster.list(&events, "").await? {
            ensure!(
                event["regarding"]["kind"] != "InferencePool" || event["type"] == "Normal",
                "a start that took its time was trouble: {event:#}"
            );
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_start_that_takes_too_long_is_start_timeout() -> anyhow::Result<()> {
    on_steady_stage("start-timeout", 2, async |stage| {
        let mut pool = pool(stage, 1);
        pool["spec"]["probes"]["startup"]["failureThreshold"] = 10.into();
        with_flags(&mut pool, "--fault kind=slow-start,for=10m");
        make(stage, &pool).await?;
        let words = Words {
            conditions: &[
                ("Ready", "False", "StartTimeout"),
                ("Degraded", "True", "StartTimeout"),
            ],
            message: &[
                "p-engine-",
                "not ready within 10 s",
                "raise failureThreshold of spec.probes.startup",
                "kubectl logs p-engine-",
            ],
        };
        told(stage, &Fact::ended(stage, |_| true), &words).await?;
        change(stage, &new_flags("")).await?;
        healed(stage, 1).await
    })
    .await
}
