//! An API that pools can use comes and goes while the operator runs.

use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::cluster::{PodState, path};
use serde_json::{Value, json};

use crate::support::{SYSTEM, Stage, condition, on_stage_alone};

const NAME: &str = "podmonitors.monitoring.coreos.com";
/// Looked for every half a minute.
const NOTICED: Duration = Duration::from_mins(1);
/// Long enough for a loop to show.
const WHILE: Duration = Duration::from_secs(20);

/// The least definition of the Prometheus operator's kind.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"plural": "podmonitors", "singular": "podmonitor", "kind": "PodMonitor", "listKind": "PodMonitorList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Alone, because others expect that monitors are not installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_definition_that_comes_and_goes_is_followed_without_a_restart_or_a_loop() -> anyhow::Result<()> {
    on_stage_alone("optional-apis", async |stage| {
        let operators = operators(stage).await?;
        let mut pool = stage.pool("p", 0);
        pool["spec"]["monitoring"] = json!({"podMonitor": true});
        pool["spec"]["gateway"] = json!({});
        stage.cluster.create(&stage.pool_path(""), &pool).await?;
        stage
            .reason("p", "Degraded", "OptionalApiMissing", NOTICED)
            .await?;

        let definitions = path("apiextensions.k8s.io/v1", "customresourcedefinitions", "", "");
        let installed = format!("{definitions}/{NAME}");
        let monitor = stage.path("monitoring.coreos.com/v1", "podmonitors", "p-engine");
        for round in 1..=2 {
            stage.cluster.create(&definitions, &definition()).await?;
            let what = format!("the pool's monitor, round {round}");
            stage
                .cluster
                .until(&what, NOTICED, &monitor, |monitor| {
                    monitor["spec"]["selector"].is_object()
                })
                .await?;
            stage.reason("p", "Degraded", "AsExpected", NOTICED).await?;
            if round == 1 {
                quiet(stage, "while it is there", 2 * operators.len() as u64).await?;
            }
            stage.cluster.delete(&installed).await?;
            stage.cluster.gone(&installed, Duration::from_secs(30)).await?;
            let told = stage
                .reason("p", "Degraded", "OptionalApiMissing", NOTICED)
                .await?;
            let message = condition(&told, "Degraded").2;
            ensure!(message.contains("podmonitors"), "{message}");
        }
        quiet(stage, "when it is gone", 0).await?;
        let now = self::operators(stage).await?;
        ensure!(
            now == operators,
            "operators were restarted: {operators:?}, then {now:?}"
        );
        Ok(())
    })
    .await
}

async fn operators(stage: &Stage) -> anyhow::Result<Vec<PodState>> {
    stage
        .cluster
        .pods(SYSTEM, "app.kubernetes.io/component=operator")
        .await
}

/// In a while nobody asks for monitors more often than a watch is renewed.
async fn quiet(stage: &Stage, when: &str, most: u64) -> anyhow::Result<()> {
    let before = stage.cluster.requests("podmonitors").await?;
    tokio::time::sleep(WHILE).await;
    let after = stage.cluster.requests("podmonitors").await?;
    let more: u64 = after.values().sum::<u64>() - before.values().sum::<u64>();
    ensure!(
        more <= most,
        "{more} requests about monitors within {WHILE:?} {when}: {before:?}, then {after:?}"
    );
    Ok(())
}
