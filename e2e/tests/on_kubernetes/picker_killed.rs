//! A picker dies without warning while streams run: none is cut, and new requests wait for little.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lmetric_testkit::{Client, Signal};
use serde_json::json;
use tokio::task::JoinSet;

use crate::load::{Load, Record, all_served, stream};
use crate::support::{Stage, on_stage, selector};

/// Tokens of a stream of 10 s at the pool's speed.
const LONG: u32 = 170;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn one_of_two_pickers_is_missed_for_a_second_at_most() -> anyhow::Result<()> {
    on_stage("picker-of-two", 2, async |stage| {
        let gap = kill_a_picker(stage, 2).await?.gap();
        ensure!(gap <= Duration::from_secs(1), "requests were refused for {gap:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn the_only_picker_is_missed_while_none_lives() -> anyhow::Result<()> {
    on_stage("only-picker", 2, async |stage| {
        let Killed { records, at, back } = kill_a_picker(stage, 1).await?;
        let refused: Vec<_> = records.iter().filter(|record| record.refused).collect();
        ensure!(
            !refused.is_empty(),
            "no request was refused, although no picker lived"
        );
        // Envoy asks for the picker's health every second
        let until = back + Duration::from_secs(3);
        for record in refused {
            ensure!(
                record.ended >= at && record.began <= until,
                "refused while a picker lived: {record:?}"
            );
        }
        Ok(())
    })
    .await
}

struct Killed {
    /// Short requests, one after another.
    records: Vec<Record>,
    /// When the picker was killed.
    at: Instant,
    /// When all pickers were ready again.
    back: Instant,
}

impl Killed {
    /// From the first refusal to the last.
    fn gap(&self) -> Duration {
        let mut refused = self.records.iter().filter(|record| record.refused);
        let first = refused.next();
        let last = refused.next_back().or(first);
        first
            .zip(last)
            .map_or(Duration::ZERO, |(first, last)| last.ended - first.began)
    }
}

/// Eight streams of 10 s run while one of `replicas` pickers gets SIGKILL; all of them must end well.
async fn kill_a_picker(stage: &Stage, replicas: usize) -> anyhow::Result<Killed> {
    let mut pool = stage.pool("p", 2);
    pool["spec"]["picker"]["replicas"] = json!(replicas);
    stage.serve(&pool).await?;
    stage
        .cluster
        .ready_pods(
            &stage.namespace,
            &selector("p", "picker"),
            replicas,
            Duration::from_secs(30),
        )
        .await?;
    let client = stage.envoy("p").await?;
    let mut streams = long_streams(&client);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let load = Load::start(client, Duration::from_millis(100), 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let victims = stage
        .cluster
        .pods(&stage.namespace, &selector("p", "picker"))
        .await?;
    let victim = victims.first().context("no picker")?;
    let at = Instant::now();
    stage
        .cluster
        .signal(&stage.namespace, &victim.name, "picker", Signal::KILL)
        .await?;
    let restarted = stage.path("v1", "pods", &victim.name);
    stage
        .cluster
        .until(
            "the picker to be restarted",
            Duration::from_secs(40),
            &restarted,
            |pod| {
                let status = &pod["status"]["containerStatuses"][0];
                status["restartCount"] == 1 && status["ready"] == true
            },
        )
        .await?;
    let back = Instant::now();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let mut long = Vec::new();
    while let Some(record) = streams.join_next().await {
        long.push(record?);
    }
    all_served(&long).context("streams in progress")?;
    let records = load.finish().await?;
    let odd = records
        .iter()
        .find(|record| record.error.is_some() && !record.refused);
    ensure!(odd.is_none(), "neither served nor refused: {odd:?}");
    Ok(Killed { records, at, back })
}

fn long_streams(client: &Client) -> JoinSet<Record> {
    let mut streams = JoinSet::new();
    for number in 0..8 {
        let client = client.clone();
        streams.spawn(async move { stream(&client, format!("long-{number}"), LONG).await });
    }
    streams
}
