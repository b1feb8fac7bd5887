//! A pool that is ready and asked for nothing costs the API server nothing.

use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::cluster::writes_between;

use crate::support::on_stage_alone;

/// Not the operator's: leader election, and what kubelets and controllers do by the clock.
const OTHERS: [&str; 4] = [
    "leases",
    "serviceaccounts/token",
    "tokenreviews",
    "subjectaccessreviews",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn nothing_is_written_in_an_idle_minute() -> anyhow::Result<()> {
    on_stage_alone("idle", 2, async |stage| {
        stage.serve(&stage.pool("p", 2)).await?;
        // the last status of the pods, the last Events
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = stage.cluster.writes().await?;
        tokio::time::sleep(Duration::from_mins(1)).await;
        let more = writes_between(&before, &stage.cluster.writes().await?, &OTHERS);
        ensure!(more.is_empty(), "written in an idle minute: {more:?}");
        Ok(())
    })
    .await
}
