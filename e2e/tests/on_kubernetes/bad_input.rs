//! What cannot be built says so, with its remedy; what serves goes on serving; nobody else is stopped.

use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::chat;
use serde_json::{Value, json};

use crate::support::{MODEL, Stage, condition, on_steady_stage};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn a_missing_secret_is_named_until_it_comes_and_stops_nobody_else() -> anyhow::Result<()> {
    on_steady_stage("missing-secret", 2, async |stage| {
        let mut lacking = stage.pool("lacking", 1);
        lacking["spec"]["model"]["secretRef"] = json!({"name": "hub", "key": "token"});
        stage.cluster.create(&stage.pool_path(""), &lacking).await?;
        let mut watched = stage.pool("watched", 1);
        // no Prometheus operator is here
        watched["spec"]["monitoring"] = json!({"podMonitor": true});
        stage.serve(&watched).await?;
        stage.reason("watched", "Degraded", "OptionalApiMissing", SOON).await?;
        let pool = stage.reason("lacking", "Degraded", "SecretMissing", SOON).await?;
        let message = condition(&pool, "Degraded").2;
        ensure!(message.contains("hub"), "the message does not name the Secret: {message}");
        warned(stage, "lacking", "SecretMissing").await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": "x"}});
        stage.cluster.create(&stage.path("v1", "secrets", ""), &secret).await?;
        stage.ready("lacking", 1).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn a_change_that_cannot_be_built_leaves_the_engines_as_they_were() -> anyhow::Result<()> {
    on_steady_stage("bad-change", 1, async |stage| {
        stage.serve(&stage.pool("p", 1)).await?;
        let engines = stage.path("apps/v1", "deployments", "p-engine");
        let before = stage.cluster.get(&engines).await?;
        for (template, named) in [
            // the operator's own
            (json!({"spec": {"containers": [{"name": "engine", "command": ["sh"]}]}}), "command"),
            // only the API server knows that this makes no sense
            (json!({"spec": {"containers": [{"name": "engine", "volumeMounts": [{"name": "nowhere", "mountPath": "/x"}]}]}}), "nowhere"),
        ] {
            let patch = json!({"spec": {"podTemplate": template}});
            stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
            let what = format!("Degraded to name {named}");
            stage
                .cluster
                .until(&what, SOON, &stage.pool_path("p"), |pool| {
                    let (status, reason, message) = condition(pool, "Degraded");
                    status == "True" && reason == "InvalidSpec" && message.contains(named)
                })
                .await?;
            let now = stage.cluster.get(&engines).await?;
            ensure!(now["spec"] == before["spec"], "the engines changed: {}", now["spec"]);
            let answer = stage.envoy("p").await?.post("/v1/chat/completions", &chat(MODEL, "still there?", 2, false)).await?;
            ensure!(answer.status.is_success(), "{} {}", answer.status, answer.text());
        }
        stage.cluster.merge(&stage.pool_path("p"), &json!({"spec": {"podTemplate": null}})).await?;
        stage
            .cluster
            .until("Degraded to end", SOON, &stage.pool_path("p"), |pool| condition(pool, "Degraded").0 == "False")
            .await?;
        Ok(())
    })
    .await
}

/// Waits for an Event about a pool with this reason.
async fn warned(stage: &Stage, pool: &str, reason: &str) -> anyhow::Result<()> {
    let about = |event: &Value| event["regarding"]["name"] == pool && event["reason"] == reason;
    let path = stage.path("events.k8s.io/v1", "events", "");
    stage
        .cluster
        .until_list(&format!("an Event {reason}"), SOON, &path, "", |events| {
            events.iter().any(about)
        })
        .await?;
    Ok(())
}
