//! The API server stops.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lmetric_testkit::cluster::path;
use lmetric_testkit::{Admin, Signal, poll};
use serde_json::json;

use super::{VICTIM, disturbing, figure, is_well, serve_spread, spread};
use crate::deletion::names;
use crate::load::{Load, all_served};
use crate::support::{SYSTEM, Stage, selector};

/// It is killed for so long.
const KILLED: Duration = Duration::from_mins(1);
/// It is frozen for so long: connections stay open and nothing is answered.
const FROZEN: Duration = Duration::from_secs(20);

/// A new leader of the operators may have to wait for the old one's Lease.
const ACTED: Duration = Duration::from_secs(30);
/// Pickers begin their watches anew within five seconds.
const KNOWN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn without_an_api_server_serving_goes_on_and_everything_converges_after() -> anyhow::Result<()> {
    disturbing("api-server", async |stage| {
        serve_spread(stage, &spread(stage, 2)).await?;
        let before = names(stage).await?;
        let pickers = pickers(stage).await?;
        let load = Load::start(stage.envoy("p").await?, Duration::from_millis(250), 4);
        tokio::time::sleep(Duration::from_secs(2)).await;

        stage.cluster.stop_api_server(Signal::KILL)?;
        pick_on(&pickers, KILLED).await?;
        stage.cluster.start_api_server().await?;
        let scaled = scale(stage, &pickers, 3).await?;
        led(stage).await?;
        figure(
            "API server killed for 60 s: scaled up after s",
            format!("{:.1}", scaled.as_secs_f64()),
        );

        stage.cluster.stop_api_server(Signal::STOP)?;
        pick_on(&pickers, FROZEN).await?;
        stage.cluster.start_api_server().await?;
        let scaled = scale(stage, &pickers, 2).await?;
        led(stage).await?;
        figure(
            "API server frozen for 20 s: scaled down after s",
            format!("{:.1}", scaled.as_secs_f64()),
        );

        let records = load.finish().await?;
        figure(
            "API server stopped: failed requests",
            records.iter().filter(|record| record.error.is_some()).count(),
        );
        all_served(&records)?;
        is_well(stage, 2).await?;
        let after = names(stage).await?;
        let kinds = |names: &[String]| -> Vec<String> {
            // which engines are left after the scaling is the ReplicaSet's choice
            names
                .iter()
                .filter(|name| !name.starts_with("pods/p-engine-"))
                .cloned()
                .collect()
        };
        ensure!(
            kinds(&after) == kinds(&before),
            "other objects than before:\n{before:?}\n{after:?}"
        );
        ensure!(after.len() == before.len(), "pods:\n{before:?}\n{after:?}");
        Ok(())
    })
    .await
}

async fn pickers(stage: &Stage) -> anyhow::Result<Vec<Admin>> {
    let pods = stage
        .cluster
        .pods(&stage.namespace, &selector("p", "picker"))
        .await?;
    pods.iter()
        .map(|pod| Ok(Admin::new(stage.cluster.pod(pod, 9_090)?.to())))
        .collect()
}

/// While the API server is away: every picker stays ready and knows its engines.
async fn pick_on(pickers: &[Admin], span: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + span;
    while Instant::now() < end {
        for picker in pickers {
            ensure!(
                picker.ready().await?,
                "a picker is not ready for want of an API server"
            );
            let known = picker.endpoints().await?.len();
            ensure!(known >= 2, "a picker has forgotten its engines: {known}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Scales just after the API server is back: the operator passes it on at once, whatever the rest of Kubernetes needs until
/// the engines are so many; every picker knows of them. How long all of it took.
async fn scale(stage: &Stage, pickers: &[Admin], replicas: u64) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let patch = json!({"spec": {"replicas": replicas}});
    stage.cluster.merge(&stage.pool_path("p"), &patch).await?;
    let engines = stage.path("apps/v1", "deployments", "p-engine");
    stage
        .cluster
        .until("the operator to act", ACTED, &engines, |engines| {
            engines["spec"]["replicas"] == replicas
        })
        .await?;
    figure(
        "API server back: operator acted after s",
        format!("{:.1}", began.elapsed().as_secs_f64()),
    );
    stage.ready("p", replicas).await?;
    let ready = Instant::now();
    let limit = Duration::from_secs(30);
    stage
        .cluster
        .ready_pods(
            &stage.namespace,
            &selector("p", "engine"),
            replicas as usize,
            limit,
        )
        .await?;
    for picker in pickers {
        picker.ready_endpoints(replicas as usize, KNOWN).await?;
    }
    figure(
        "API server back: pickers knew after Ready s",
        format!("{:.1}", ready.elapsed().as_secs_f64()),
    );
    let nodes = stage.cluster.node_ready(VICTIM).await?;
    ensure!(nodes == "True", "{VICTIM} is {nodes}");
    Ok(began.elapsed())
}

/// Waits until an operator holds the Lease and renews it.
async fn led(stage: &Stage) -> anyhow::Result<()> {
    let before = renewals(stage).await?;
    let (limit, every) = (Duration::from_secs(30), Duration::from_millis(500));
    poll("the Lease to be renewed", limit, every, || async {
        let now = renewals(stage).await?;
        ensure!(now != before, "{now:?}");
        stage.cluster.leader().await
    })
    .await
    .context("no operator leads")?;
    Ok(())
}

async fn renewals(stage: &Stage) -> anyhow::Result<Vec<String>> {
    let leases = path("coordination.k8s.io/v1", "leases", SYSTEM, "");
    let leases = stage.cluster.list(&leases, "").await?;
    Ok(leases
        .iter()
        .map(|lease| lease["spec"]["renewTime"].to_string())
        .collect())
}
