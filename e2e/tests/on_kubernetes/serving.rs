//! From the shipped example to an answered chat.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use bytes::Bytes;
use lmetric_testkit::chat;
use serde_json::{Value, json};

use crate::support::{Stage, on_stage, selector};

/// The example for two nodes of eight H20.
const EXAMPLE: &str = "manifests/examples/sixteen-h20.yaml";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn the_sixteen_h20_example_serves_chats_through_its_own_envoy() -> anyhow::Result<()> {
    on_stage("serving", 16, async |stage| {
        apply_example(stage).await?;
        let pools = stage.cluster.list(&stage.pool_path(""), "").await?;
        let name = pools[0]["metadata"]["name"]
            .as_str()
            .context("a pool")?
            .to_owned();
        let pool = stage.ready(&name, 16).await?;
        let mut nodes = BTreeMap::<_, u32>::new();
        for pod in stage
            .cluster
            .pods(&stage.namespace, &selector(&name, "engine"))
            .await?
        {
            *nodes.entry(pod.node.context("a scheduled engine")?).or_default() += 1;
        }
        ensure!(nodes.values().eq(&[8, 8]), "engines by node: {nodes:?}");
        ensure!(pool["status"]["gpus"] == 16, "{}", pool["status"]);
        chats(stage, &name, &pool).await?;
        columns(stage, &name).await
    })
    .await
}

/// As a person would: kustomize with a patch of image, resources, cache and times, and nothing else.
async fn apply_example(stage: &Stage) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::copy(
        stage.cluster.root().join(EXAMPLE),
        folder.path().join("example.yaml"),
    )?;
    let small = json!({"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": null});
    let patch = json!([{
        "target": {"kind": "InferencePool"},
        "patch": json!({
            "apiVersion": "lmetric.io/v1alpha1",
            "kind": "InferencePool",
            "metadata": {"name": "any"},
            "spec": {
                "engine": {"image": stage.cluster.images().vllm},
                "resources": {"cpu": "100m", "memory": "128Mi", "sharedMemory": "16Mi"},
                "cache": {"type": "None", "size": null, "storageClassName": null, "accessMode": null, "claimName": null, "path": null, "retain": null},
                "lifecycle": {"startupTimeout": "2m", "drainTimeout": "10s"},
                "picker": {"resources": small},
                "gateway": {"standalone": {"resources": small}},
            },
        }).to_string(),
    }]);
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": stage.namespace,
        "resources": ["example.yaml"],
        "patches": patch,
    });
    std::fs::write(
        folder.path().join("kustomization.yaml"),
        kustomization.to_string(),
    )?;
    let path = folder.path().to_str().context("a path of text")?;
    stage
        .cluster
        .kubectl(&["apply", "--server-side", "-k", path])
        .await?;
    Ok(())
}

async fn chats(stage: &Stage, name: &str, pool: &Value) -> anyhow::Result<()> {
    let envoy = stage.envoy(name).await?;
    let model = pool["spec"]["model"]["servedNames"][0]
        .as_str()
        .context("a served name")?;
    let body = chat(model, "what is a key-value cache?", 8, false);
    let answer = envoy.post("/v1/chat/completions", &body).await?;
    ensure!(answer.status.is_success(), "{} {}", answer.status, answer.text());
    ensure!(
        answer.json()?["usage"]["completion_tokens"] == 8,
        "{}",
        answer.text()
    );
    // an address that no client may reach through the gateway
    let headers = [("x-gateway-destination-endpoint", "172.30.0.1:6443")];
    let bytes = Bytes::from(body.to_string());
    let answer = envoy
        .exchange("POST", "/v1/chat/completions", &headers, bytes)
        .await?;
    ensure!(
        answer.status.is_success() && answer.json()?["model"] == model,
        "with a destination of the client's own: {} {}",
        answer.status,
        answer.text()
    );
    let url = pool["status"]["url"].as_str().unwrap_or_default();
    ensure!(
        url.contains(&format!("{name}-envoy.{}.svc", stage.namespace)),
        "status.url is {url:?}"
    );
    Ok(())
}

async fn columns(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let table = stage
        .cluster
        .kubectl(&["get", "lmpool", "-n", &stage.namespace])
        .await?;
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default();
    for column in ["MODEL", "READY", "GPUS", "AGE"] {
        ensure!(head.contains(column), "no column {column} in {head:?}");
    }
    ensure!(
        lines.any(|line| line.starts_with(name) && line.contains("True")),
        "{table}"
    );
    Ok(())
}
