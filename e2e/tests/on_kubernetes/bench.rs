//! What many pools cost. `make bench-pools` prints the figures.
//!
//! No node takes new pods meanwhile: every object of every pool is made, and its pods wait for a node. So the figures are about
//! the operator and the API server, on whatever cores the machine has for both, the controllers and the scheduler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use lmetric_testkit::cluster::{Cluster, Writes, path, writes_between};
use serde_json::{Value, json};

use crate::support::{SYSTEM, Stage, on_stage_alone};

const POOLS: usize = 200;
/// Pools that are created at the same time.
const CREATORS: usize = 8;
/// They have to converge within this.
const LIMIT: Duration = Duration::from_mins(1);
/// The operator may hold so much.
const MEMORY: u64 = 250 << 20;
/// After that nothing should be applied any more.
const IDLE: Duration = Duration::from_secs(30);

/// What a pool owns, as API version, plural and their number in each of these pools.
const OWNED: [(&str, &str, usize); 7] = [
    ("v1", "serviceaccounts", 2),
    ("rbac.authorization.k8s.io/v1", "rolebindings", 1),
    ("v1", "configmaps", 2),
    ("v1", "services", 3),
    ("networking.k8s.io/v1", "networkpolicies", 3),
    ("apps/v1", "deployments", 3),
    ("policy/v1", "poddisruptionbudgets", 1),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make bench-pools"]
async fn two_hundred_pools_converge_within_a_minute_with_one_write_for_each_object() -> anyhow::Result<()> {
    on_stage_alone("bench", async |stage| {
        let cluster = &stage.cluster;
        // a young operator, so that its memory is that of these pools
        let deployment = "deployment/lmetric-operator";
        cluster
            .kubectl(&["rollout", "restart", deployment, "-n", SYSTEM])
            .await?;
        cluster
            .kubectl(&["rollout", "status", deployment, "-n", SYSTEM, "--timeout=90s"])
            .await?;
        let small = peak(cluster).await?;
        take_pods(cluster, false).await?;
        let result = measure(stage, small).await;
        // before a node would take them all
        cluster
            .delete(&path("v1", "namespaces", "", &stage.namespace))
            .await?;
        let pods = stage.path("v1", "pods", "");
        cluster
            .until_list("no pod to be left", 5 * LIMIT, &pods, "", <[Value]>::is_empty)
            .await?;
        take_pods(cluster, true).await?;
        result
    })
    .await
}

async fn measure(stage: &Stage, small: u64) -> anyhow::Result<()> {
    let cluster = &stage.cluster;
    let before = cluster.writes().await?;
    let began = Instant::now();
    let list = stage.pool_path("");
    stream::iter(0..POOLS)
        .map(|number| {
            let pool = stage.pool(&format!("p{number:03}"), 1);
            let list = &list;
            async move { cluster.create(list, &pool).await }
        })
        .buffer_unordered(CREATORS)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let created = began.elapsed();
    // a status is written after everything else of its pool
    cluster
        .until_list("all pools to have a status", 5 * LIMIT, &list, "", |pools| {
            pools.len() == POOLS
                && pools
                    .iter()
                    .all(|pool| pool["status"]["observedGeneration"] == pool["metadata"]["generation"])
        })
        .await?;
    let converged = began.elapsed();
    let objects = owned(stage).await?;
    let writes = writes_between(&before, &cluster.writes().await?, &[]);
    let memory = peak(cluster).await?;

    tokio::time::sleep(IDLE).await;
    let later = writes_between(&before, &cluster.writes().await?, &[]);
    report(&Figures {
        created,
        converged,
        small,
        memory,
        later_memory: peak(cluster).await?,
        objects: &objects,
        writes: &writes,
        later: &later,
    })?;

    for (kind, count, expected) in &objects {
        ensure!(count == expected, "{kind}: {count} of {expected}");
        let applied = count_of(&later, "APPLY", kind);
        ensure!(
            applied == *count as u64,
            "{kind}: {count} objects and {applied} writes"
        );
    }
    ensure!(
        converged <= LIMIT,
        "converged after {converged:?}, more than {LIMIT:?}"
    );
    ensure!(
        memory <= MEMORY,
        "the operator held {memory} bytes, more than {MEMORY}"
    );
    Ok(())
}

struct Figures<'a> {
    created: Duration,
    converged: Duration,
    small: u64,
    memory: u64,
    later_memory: u64,
    objects: &'a [(&'static str, usize, usize)],
    writes: &'a Writes,
    later: &'a Writes,
}

/// Past the capture of output: the figures are what this is for.
fn report(figures: &Figures<'_>) -> anyhow::Result<()> {
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let cores = std::thread::available_parallelism()?;
    let mut text = format!("\n{POOLS} pools on {cores} cores, which the whole control plane shares\n\n");
    let seconds = |duration: Duration| format!("{:.1} s", duration.as_secs_f64());
    let mut line = |what: &str, is: String| writeln!(text, "  {what:<44} {is:>10}");
    line("all are created after", seconds(figures.created))?;
    line(
        "all have their objects and a status after",
        seconds(figures.converged),
    )?;
    line(
        "memory of the operator before (VmHWM)",
        format!("{} MiB", mebibytes(figures.small)),
    )?;
    line(
        "memory when converged (VmHWM)",
        format!("{} MiB", mebibytes(figures.memory)),
    )?;
    let later = format!("memory {} s later (VmHWM)", IDLE.as_secs());
    line(&later, format!("{} MiB", mebibytes(figures.later_memory)))?;
    writeln!(
        text,
        "\n  {:<24} {:>9} {:>9} {:>12}",
        "kind",
        "objects",
        "applied",
        format!("{} s later", IDLE.as_secs())
    )?;
    let mut total = (0, 0, 0);
    for (kind, count, _) in figures.objects {
        let (at, later) = (
            count_of(figures.writes, "APPLY", kind),
            count_of(figures.later, "APPLY", kind),
        );
        total = (total.0 + count, total.1 + at, total.2 + later);
        writeln!(text, "  {kind:<24} {count:>9} {at:>9} {later:>12}")?;
    }
    writeln!(
        text,
        "  {:<24} {:>9} {:>9} {:>12}",
        "all", total.0, total.1, total.2
    )?;
    let status = "inferencepools/status";
    let (at, later) = (
        count_of(figures.writes, "APPLY", status),
        count_of(figures.later, "APPLY", status),
    );
    writeln!(text, "  {status:<24} {POOLS:>9} {at:>9} {later:>12}")?;
    writeln!(
        text,
        "\n  writes by the API server's own count (apiserver_request_total)\n"
    )?;
    std::io::stderr().write_all(text.as_bytes())?;
    Ok(())
}

fn count_of(writes: &Writes, verb: &str, resource: &str) -> u64 {
    writes.get(&format!("{verb} {resource}")).copied().unwrap_or(0)
}

/// Objects of the operator by kind, and how many there should be.
async fn owned(stage: &Stage) -> anyhow::Result<Vec<(&'static str, usize, usize)>> {
    let mut counts = Vec::new();
    for (version, plural, each) in OWNED {
        let list = stage.path(version, plural, "");
        let found = stage
            .cluster
            .list(&list, "app.kubernetes.io/managed-by=lmetric-operator")
            .await?;
        let by_pool = found
            .iter()
            .fold(BTreeMap::<&str, usize>::new(), |mut by_pool, object| {
                *by_pool
                    .entry(
                        object["metadata"]["labels"]["lmetric.io/pool"]
                            .as_str()
                            .unwrap_or_default(),
                    )
                    .or_default() += 1;
                by_pool
            });
        ensure!(
            by_pool.values().all(|count| *count == each),
            "{plural}: not {each} for each pool: {by_pool:?}"
        );
        counts.push((plural, found.len(), each * POOLS));
    }
    Ok(counts)
}

/// The most that any operator has held, in bytes.
async fn peak(cluster: &Cluster) -> anyhow::Result<u64> {
    let mut most: Option<u64> = None;
    for pod in cluster
        .pods(SYSTEM, "app.kubernetes.io/component=operator")
        .await?
    {
        if !pod.terminating {
            most = most.max(Some(cluster.peak_memory(SYSTEM, &pod.name, "operator").await?));
        }
    }
    most.context("no operator runs")
}

/// Whether nodes take new pods.
async fn take_pods(cluster: &Cluster, take: bool) -> anyhow::Result<()> {
    for node in cluster.list(&path("v1", "nodes", "", ""), "").await? {
        let name = node["metadata"]["name"].as_str().context("a node without name")?;
        let patch: Value = json!({"spec": {"unschedulable": !take}});
        cluster.merge(&path("v1", "nodes", "", name), &patch).await?;
    }
    Ok(())
}
