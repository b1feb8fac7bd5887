//! Nodes crash, fall silent and are drained, the API server stops: what that costs requests, and what the pool says.
//!
//! These disturb the whole cluster, so each runs while no other test does. Node 2 is the victim: the tests' own way to
//! ClusterIPs leads through node 1, and so does DNS once [`disturbing`] has moved it there.

mod api_server;
mod crash;
mod drain;
mod kubelet;
mod rights;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lmetric_testkit::Client;
use lmetric_testkit::cluster::{Cluster, PodState, path};
use serde_json::{Value, json};

use crate::load::Record;
use crate::support::{Stage, condition, on_stage_alone, selector};

/// The node that things happen to.
const VICTIM: &str = "node2";
/// The other.
const SURVIVOR: &str = "node1";
/// Time from when Kubernetes shows a fault until the pool must name it.
const TOLD: Duration = Duration::from_secs(10);

/// Runs a test that disturbs the whole cluster, while no other test runs, and puts the cluster right again whatever became
/// of it.
async fn disturbing(
    namespace: &str,
    body: impl AsyncFnOnce(&Stage) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    on_stage_alone(namespace, async |stage| {
        dns_survives(&stage.cluster).await?;
        let result = body(stage).await;
        mend(&stage.cluster).await.context("putting the cluster right")?;
        result
    })
    .await
}

/// Moves CoreDNS off the victim.
async fn dns_survives(cluster: &Cluster) -> anyhow::Result<()> {
    let dns = cluster.pods("kube-system", "k8s-app=kube-dns").await?;
    if dns.iter().all(|pod| pod.node.as_deref() == Some(SURVIVOR)) {
        return Ok(());
    }
    let survivor = json!({"spec": {"template": {"spec": {"nodeName": SURVIVOR}}}});
    let coredns = path("apps/v1", "deployments", "kube-system", "coredns");
    cluster.merge(&coredns, &survivor).await?;
    let args = [
        "-n",
        "kube-system",
        "rollout",
        "status",
        "--timeout=60s",
        "deployment/coredns",
    ];
    cluster.kubectl(&args).await?;
    Ok(())
}

async fn mend(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.start_api_server().await?;
    if !cluster.node_runs(VICTIM)? {
        cluster.start_node(VICTIM).await?;
    }
    if !cluster.kubelet_runs(VICTIM)? {
        cluster.start_kubelet(VICTIM).await?;
    }
    cluster.kubectl(&["uncordon", VICTIM]).await?;
    Ok(())
}

/// A pool with half of everything on each node: engines, two pickers, two Envoys.
fn spread(stage: &Stage, engines: u32) -> Value {
    let mut pool = stage.pool("p", engines);
    pool["spec"]["placement"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        // a cordoned node is no place to spread to
        "nodeTaintsPolicy": "Honor",
        "labelSelector": {"matchLabels": {"lmetric.io/pool": "p", "app.kubernetes.io/component": "engine"}},
    }]);
    pool["spec"]["picker"]["replicas"] = json!(2);
    pool["spec"]["gateway"]["standalone"]["replicas"] = json!(2);
    pool
}

/// Makes the pool and waits until all of it is ready; checks that the victim has its share.
async fn serve_spread(stage: &Stage, pool: &Value) -> anyhow::Result<()> {
    stage.serve(pool).await?;
    whole(stage).await?;
    let engines = pool["spec"]["replicas"].as_u64().unwrap_or(0) as usize;
    for (component, count) in [("engine", engines / 2), ("picker", 1), ("envoy", 1)] {
        let there = on(stage, component, VICTIM).await?;
        ensure!(there.len() == count, "{component}s on {VICTIM}: {there:?}");
    }
    Ok(())
}

/// Waits until both pickers and both Envoys are ready.
async fn whole(stage: &Stage) -> anyhow::Result<()> {
    for component in ["picker", "envoy"] {
        let limit = Duration::from_mins(1);
        stage
            .cluster
            .ready_pods(&stage.namespace, &selector("p", component), 2, limit)
            .await?;
    }
    Ok(())
}

/// A component's pods on a node.
async fn on(stage: &Stage, component: &str, node: &str) -> anyhow::Result<Vec<PodState>> {
    let pods = stage
        .cluster
        .pods(&stage.namespace, &selector("p", component))
        .await?;
    let there = |pod: &PodState| pod.node.as_deref() == Some(node);
    Ok(pods.into_iter().filter(there).collect())
}

/// A client of the Envoy that survives.
async fn surviving_envoy(stage: &Stage) -> anyhow::Result<Client> {
    let envoys = on(stage, "envoy", SURVIVOR).await?;
    // the port of Envoy's pods, whatever that of the Service is
    stage
        .cluster
        .pod(envoys.first().context("no Envoy there")?, 8_080)
}

/// Waits until Kubernetes says that the victim is not ready; when that was seen.
async fn seen_lost(stage: &Stage) -> anyhow::Result<Instant> {
    let what = format!("Kubernetes to call {VICTIM} not ready");
    let node = path("v1", "nodes", "", VICTIM);
    let lost = |node: &Value| condition(node, "Ready").0 == "Unknown";
    stage
        .cluster
        .until(&what, Duration::from_secs(40), &node, lost)
        .await?;
    Ok(Instant::now())
}

/// Waits until the pool names the lost node and says what to do; how long that took from `seen` on.
async fn pool_says_lost(stage: &Stage, seen: Instant) -> anyhow::Result<Duration> {
    let pool = stage.reason("p", "Degraded", "NodeLost", TOLD).await?;
    let took = seen.elapsed();
    let (status, _, message) = condition(&pool, "Degraded");
    ensure!(
        status == "True" && message.contains(VICTIM),
        "{status}: {message}"
    );
    ensure!(message.contains("bring it back"), "no remedy: {message}");
    ensure!(took <= TOLD, "NodeLost {took:?} after Kubernetes said so");
    let (status, reason, message) = condition(&pool, "Ready");
    ensure!(
        status == "True",
        "the other node serves, and Ready is {status}: {reason}: {message}"
    );
    Ok(took)
}

/// Waits until nothing is wrong with the pool and it has `engines`.
async fn is_well(stage: &Stage, engines: u64) -> anyhow::Result<()> {
    stage
        .reason("p", "Degraded", "AsExpected", Duration::from_secs(90))
        .await?;
    stage.ready("p", engines).await?;
    whole(stage).await
}

/// From the first failure's beginning to the last one's.
fn failing(records: &[Record]) -> Duration {
    let mut failed = records.iter().filter(|record| record.error.is_some());
    let first = failed.next();
    let last = failed.next_back().or(first);
    first
        .zip(last)
        .map_or(Duration::ZERO, |(first, last)| last.began - first.began)
}

/// Fails unless the namespace holds exactly the objects that it held `before`.
async fn unchanged<T: PartialEq + std::fmt::Debug>(
    before: &T,
    now: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<()> {
    let after = now.await?;
    ensure!(
        after == *before,
        "other objects than before:\n{before:?}\n{after:?}"
    );
    Ok(())
}

/// A measured figure, in one line.
fn figure(what: &str, value: impl std::fmt::Display) {
    eprintln!("figure: {what}: {value}");
}
