//! A node loses power.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::task::JoinSet;

use super::{
    VICTIM, disturbing, failing, figure, is_well, pool_says_lost, seen_lost, serve_spread, spread,
    surviving_envoy, unchanged,
};
use crate::deletion::names;
use crate::load::{Load, stream};

/// No request that begins later after the crash may fail.
const NOTICED: Duration = Duration::from_secs(5);
/// A stream of an engine that is gone ends, with an error, this soon.
const CUT: Duration = Duration::from_secs(20);
/// Tokens of a stream of 12 s.
const LONG: u32 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_crashed_node_costs_requests_for_seconds_and_comes_back() -> anyhow::Result<()> {
    disturbing("node-crash", async |stage| {
        serve_spread(stage, &spread(stage, 4)).await?;
        let before = names(stage).await?;
        let client = surviving_envoy(stage).await?;
        let mut streams = JoinSet::new();
        for number in 0..8 {
            let client = client.clone();
            streams.spawn(async move { stream(&client, format!("long-{number}"), LONG).await });
        }
        let load = Load::start(client, Duration::from_millis(100), 2);
        tokio::time::sleep(Duration::from_secs(3)).await;

        let at = Instant::now();
        stage.cluster.crash_node(VICTIM)?;
        let seen = seen_lost(stage).await?;
        let told = pool_says_lost(stage, seen).await?;
        let (mut cut, mut last) = (0, Duration::ZERO);
        while let Some(record) = streams.join_next().await {
            let record = record?;
            if record.error.is_some() {
                cut += 1;
                last = last.max(record.ended.saturating_duration_since(at));
            }
        }
        ensure!(
            (1..8).contains(&cut),
            "{cut} of 8 streams were cut by the crash of one of two nodes"
        );
        ensure!(last <= CUT, "a stream of the lost node hung for {last:?}");
        // no trial is spent on it either
        tokio::time::sleep(Duration::from_secs(5)).await;

        stage.cluster.start_node(VICTIM).await?;
        let back = Instant::now();
        is_well(stage, 4).await?;
        let well = back.elapsed();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let records = load.finish().await?;
        let failed = records.iter().filter(|record| record.error.is_some());
        let late: Vec<_> = failed
            .clone()
            .filter(|record| record.began > at + NOTICED)
            .collect();
        figure(
            "node crash: seconds of errors",
            format!("{:.1}", failing(&records).as_secs_f64()),
        );
        figure(
            "node crash: failed requests",
            format!("{} of {}", failed.count(), records.len()),
        );
        figure(
            "node crash: last stream cut after s",
            format!("{:.1}", last.as_secs_f64()),
        );
        figure(
            "node crash: NotReady after s",
            format!("{:.1}", (seen - at).as_secs_f64()),
        );
        figure(
            "node crash: NodeLost after NotReady s",
            format!("{:.1}", told.as_secs_f64()),
        );
        figure(
            "node crash: whole again after s",
            format!("{:.1}", well.as_secs_f64()),
        );
        ensure!(
            late.is_empty(),
            "{} failed later than {NOTICED:?}: {:#?}",
            late.len(),
            late.first()
        );
        unchanged(&before, names(stage)).await
    })
    .await
}
