//! A pool that is ready and asked for nothing costs the API server nothing.

use std::time::Duration;

use anyhow::{bail, ensure};
use lmetric_testkit::cluster::{Writes, writes_between};
use serde_json::json;

use crate::support::{Stage, on_stage_alone};

/// Not the operator's: leader election, and what kubelets and controllers do by the clock.
const OTHERS: [&str; 5] = [
    "leases",
    "nodes/status",
    "serviceaccounts/token",
    "tokenreviews",
    "subjectaccessreviews",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn nothing_is_written_in_an_idle_minute() -> anyhow::Result<()> {
    on_stage_alone("idle", 2, async |stage| {
        stage.serve(&stage.pool("p", 2)).await?;
        let before = quiet(stage).await?;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let more = writes_between(&before, &stage.cluster.writes().await?, &OTHERS);
        ensure!(more.is_empty(), "written in an idle minute: {more:?}");
        // the count does see what the operator writes
        let patch = json!({"spec": {"disruption": {"maxUnavailable": 2}}});
        stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let more = writes_between(&before, &stage.cluster.writes().await?, &OTHERS);
        for what in ["APPLY poddisruptionbudgets", "APPLY inferencepools/status"] {
            ensure!(
                more.get(what).is_some_and(|count| *count == 1),
                "after one change: {more:?}"
            );
        }
        Ok(())
    })
    .await
}

/// The count once the last status of the pods and the last Events are written: when ten seconds brought nothing new.
async fn quiet(stage: &Stage) -> anyhow::Result<Writes> {
    for _ in 0..9 {
        let before = stage.cluster.writes().await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let after = stage.cluster.writes().await?;
        if writes_between(&before, &after, &OTHERS).is_empty() {
            return Ok(after);
        }
    }
    bail!("there was no quiet moment within 90 s")
}
