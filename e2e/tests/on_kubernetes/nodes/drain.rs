//! `kubectl drain`, with room elsewhere and without.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use tokio::task::JoinHandle;

use super::{SURVIVOR, VICTIM, disturbing, figure, is_well, on, serve_spread, spread};
use crate::load::{Load, all_served};
use crate::support::{Stage, condition, is_true, selector};
use crate::watch::Watch;

/// Tokens of a stream of 6 s.
const TOKENS: u32 = 100;
/// So often that each engine gets some before the drain: a few streams would all go to those that hold the chat template's first block.
const EVERY: Duration = Duration::from_millis(200);
/// Between two counts of the engines.
const LOOK: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn draining_a_node_fails_no_request() -> anyhow::Result<()> {
    disturbing("drain", async |stage| {
        serve_spread(stage, &spread(stage, 4)).await?;
        let load = Load::start(stage.envoy("p").await?, EVERY, TOKENS);
        let watch = Watch::start(stage).await?;
        let least = Least::watch(stage);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let at = Instant::now();
        drain(stage).await?;
        let drained = at.elapsed();
        stage.ready("p", 4).await?;
        let engines = on(stage, "engine", SURVIVOR).await?;
        ensure!(engines.len() == 4, "on the node that was left: {engines:?}");
        let records = load.finish().await?;
        let least = least.finish().await?;
        figure("drain: s", format!("{:.1}", drained.as_secs_f64()));
        figure("drain: fewest engines of 4", least);
        all_served(&records)?;
        ensure!(least >= 3, "{least} of 4 engines served at a time");
        let seen = watch.finish().await?;
        ensure!(seen.gone.len() == 2, "two engines should have gone: {seen:?}");
        seen.outlived_their_streams(&records)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_drain_without_room_stops_after_one_engine_and_ends_after_uncordon() -> anyhow::Result<()> {
    disturbing("drain-full", async |stage| {
        let mut pool = spread(stage, 4);
        pool["spec"]["parallelism"] = json!({"tensor": 4});
        serve_spread(stage, &pool).await?;
        let load = Load::start(stage.envoy("p").await?, EVERY, 20);
        let least = Least::watch(stage);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let at = Instant::now();
        let cluster = stage.cluster.clone();
        let draining: JoinHandle<anyhow::Result<()>> = tokio::spawn(async move {
            cluster.kubectl(&DRAIN).await?;
            Ok(())
        });
        let pool = stage
            .reason("p", "Degraded", "InsufficientGPU", Duration::from_secs(75))
            .await?;
        let told = at.elapsed();
        let (_, _, message) = condition(&pool, "Degraded");
        ensure!(
            message.contains("nvidia.com/gpu") && message.contains("lower spec.replicas"),
            "no remedy: {message}"
        );
        ensure!(is_true(&pool, "Ready"), "three engines serve: {}", pool["status"]);
        ensure!(!draining.is_finished(), "the drain did not stop: {draining:?}");
        let left = on(stage, "engine", VICTIM).await?;
        ensure!(
            left.len() == 1 && left[0].ready && !left[0].terminating,
            "one engine should be left there: {left:?}"
        );
        stage.cluster.kubectl(&["uncordon", VICTIM]).await?;
        let uncordoned = Instant::now();
        draining.await?.context("the drain")?;
        is_well(stage, 4).await?;
        let well = uncordoned.elapsed();
        let records = load.finish().await?;
        let least = least.finish().await?;
        figure(
            "drain of full nodes: InsufficientGPU after s",
            format!("{:.1}", told.as_secs_f64()),
        );
        figure(
            "drain of full nodes: well after uncordon s",
            format!("{:.1}", well.as_secs_f64()),
        );
        all_served(&records)?;
        ensure!(least >= 3, "{least} of 4 engines served at a time");
        Ok(())
    })
    .await
}

const DRAIN: [&str; 5] = [
    "drain",
    VICTIM,
    "--ignore-daemonsets",
    "--delete-emptydir-data",
    "--timeout=170s",
];

async fn drain(stage: &Stage) -> anyhow::Result<()> {
    stage.cluster.kubectl(&DRAIN).await?;
    Ok(())
}

/// The fewest engines that served at a time.
struct Least {
    least: Arc<AtomicUsize>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Least {
    fn watch(stage: &Stage) -> Self {
        let (cluster, namespace) = (stage.cluster.clone(), stage.namespace.clone());
        let least = Arc::new(AtomicUsize::new(usize::MAX));
        let seen = Arc::clone(&least);
        let task = tokio::spawn(async move {
            loop {
                let pods = cluster.pods(&namespace, &selector("p", "engine")).await?;
                let serving = pods.iter().filter(|pod| pod.ready && !pod.terminating).count();
                seen.fetch_min(serving, Ordering::Relaxed);
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { least, task }
    }

    async fn finish(self) -> anyhow::Result<usize> {
        self.task.abort();
        if let Ok(ended) = self.task.await {
            ended.context("counting engines")?;
        }
        Ok(self.least.load(Ordering::Relaxed))
    }
}
