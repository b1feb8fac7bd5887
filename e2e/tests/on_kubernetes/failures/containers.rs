//! Engines that end by themselves, or for want of memory.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use super::told::{Fact, Words, told};
use super::{change, healed, make, new_flags, pool, pool_with_envoy, serving, with_flags};
use crate::load::Load;
use crate::support::{on_steady_stage, selector};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn an_engine_that_ends_again_and_again_is_a_crash_loop_with_its_exit_code() -> anyhow::Result<()> {
    on_steady_stage("crash-loop", 2, async |stage| {
        let mut pool = pool(stage, 1);
        with_flags(
            &mut pool,
            "--fault kind=slow-start,for=10m --fault kind=exit-code,code=7,after=1s",
        );
        make(stage, &pool).await?;
        let words = Words {
            conditions: &[("Ready", "False", "CrashLoop"), ("Degraded", "True", "CrashLoop")],
            message: &["exit code 7", "kubectl logs p-engine-", "--previous"],
        };
        let fact = Fact::ended(stage, |ended| ended["exitCode"] == 7);
        told(stage, &fact, &words).await?;
        change(stage, &new_flags("")).await?;
        healed(stage, 1).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn an_engine_that_eats_its_memory_is_oom_killed_and_the_other_one_serves() -> anyhow::Result<()> {
    on_steady_stage("oom", 2, async |stage| {
        serving(stage, &pool_with_envoy(stage, 2)).await?;
        let engines = stage
            .cluster
            .pods(&stage.namespace, &selector("p", "engine"))
            .await?;
        let victim = engines.first().context("an engine")?;
        let load = Load::start(stage.envoy("p").await?, Duration::from_millis(500), 17);
        let eats = json!({"kind": "grow-memory", "rate": "256M", "limit": "4G"});
        stage.cluster.engine_fault(victim, 8000, &eats).await?;
        let words = Words {
            conditions: &[("Degraded", "True", "OOMKilled"), ("Ready", "True", "Serving")],
            message: &[&victim.name, "raise spec.resources.memory"],
        };
        let fact = Fact::ended(stage, |ended| ended["reason"] == "OOMKilled");
        told(stage, &fact, &words).await?;
        // the picker has left it out by now
        let left_out = Instant::now();
        healed(stage, 2).await?;
        for record in load.finish().await? {
            ensure!(
                record.error.is_none() || record.began < left_out,
                "failed although one engine lived: {record:?}"
            );
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn an_engine_that_has_too_little_memory_to_start_says_so_until_it_gets_more() -> anyhow::Result<()> {
    on_steady_stage("oom-at-start", 2, async |stage| {
        let mut pool = pool(stage, 1);
        with_flags(&mut pool, "--fault kind=grow-memory,rate=1G,limit=192M");
        make(stage, &pool).await?;
        let words = Words {
            conditions: &[("Ready", "False", "OOMKilled"), ("Degraded", "True", "OOMKilled")],
            message: &["more memory than it may", "raise spec.resources.memory"],
        };
        let fact = Fact::ended(stage, |ended| ended["reason"] == "OOMKilled");
        told(stage, &fact, &words).await?;
        change(stage, &json!({"spec": {"resources": {"memory": "512Mi"}}})).await?;
        healed(stage, 1).await
    })
    .await
}
