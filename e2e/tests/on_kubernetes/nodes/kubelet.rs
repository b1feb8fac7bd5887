//! A kubelet dies, its containers do not.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::{
    VICTIM, disturbing, figure, is_well, on, pool_says_lost, seen_lost, serve_spread, spread, unchanged,
};
use crate::deletion::names;
use crate::load::{Load, all_served};
use crate::watch::Watch;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn engines_of_a_silent_kubelet_go_on_serving() -> anyhow::Result<()> {
    disturbing("kubelet-dead", async |stage| {
        serve_spread(stage, &spread(stage, 2)).await?;
        let before = names(stage).await?;
        let engine = on(stage, "engine", VICTIM)
            .await?
            .pop()
            .context("no engine there")?;
        let address = engine.ip.context("an engine without address")?.to_string();
        // streams overlap: one at a time would all go to the engine that holds the chat template's first block
        let load = Load::start(stage.envoy("p").await?, Duration::from_millis(200), 40);
        let watch = Watch::start(stage).await?;

        let at = Instant::now();
        stage.cluster.kill_kubelet(VICTIM)?;
        let seen = seen_lost(stage).await?;
        let told = pool_says_lost(stage, seen).await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let until = Instant::now();
        stage.cluster.start_kubelet(VICTIM).await?;
        let back = Instant::now();
        is_well(stage, 2).await?;
        let well = back.elapsed();
        let records = load.finish().await?;
        let winners = watch.finish().await?.winners;
        figure(
            "kubelet dead: Unknown after s",
            format!("{:.1}", (seen - at).as_secs_f64()),
        );
        figure(
            "kubelet dead: NodeLost after Unknown s",
            format!("{:.1}", told.as_secs_f64()),
        );
        figure(
            "kubelet dead: whole again after s",
            format!("{:.1}", well.as_secs_f64()),
        );
        all_served(&records)?;
        let meanwhile = records
            .iter()
            .filter(|record| record.began > seen && record.ended < until)
            .filter(|record| winners.get(&record.id) == Some(&address))
            .count();
        ensure!(
            meanwhile > 0,
            "the engine answers, and got no request while its kubelet was silent"
        );
        unchanged(&before, names(stage)).await
    })
    .await
}
