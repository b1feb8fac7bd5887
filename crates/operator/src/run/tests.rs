//! A whole operator against an API server in memory. Time is paused: waiting for a Lease takes none.

use std::future::pending;

use clap::Parser as _;
use lmetric_testkit::fake_api::{FakeApi, Refusal};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use super::*;
use crate::{
    args::{Cli, Command},
    testing,
};

const POOL: &str = "/apis/lmetric.io/v1alpha1/namespaces/models/inferencepools/qwen";
const ENGINES: &str = "/apis/apps/v1/namespaces/models/deployments/qwen-engine";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/lmetric-system/leases/lmetric-operator";

fn pool(change: &Value) -> Value {
    let pool = testing::pool(change);
    json!({"apiVersion": "lmetric.io/v1alpha1", "kind": "InferencePool", "metadata": {"uid": "0b5e"}, "spec": pool.spec})
}

/// Starts an operator; it stops when `told` resolves.
async fn start(
    client: Client,
    told: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) -> JoinHandle<anyhow::Result<()>> {
    let line = ["lmetric-operator", "run", "--picker-image=lmetric:1"];
    let Command::Run(args) = Cli::parse_from(line).command;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let logs = Logs::detached("info").expect("logs");
    tokio::spawn(operate(client, *args, listener, logs, told))
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_mins(2), "no {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn holder(api: &FakeApi) -> String {
    let lease = api.object(LEASE).unwrap_or_default();
    lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// What is written within a while, the Lease excluded.
async fn writes(api: &FakeApi) -> Vec<String> {
    api.take_writes();
    sleep(Duration::from_mins(1)).await;
    let writes = api.take_writes().into_iter();
    writes
        .filter(|call| !call.path.contains("/leases"))
        .map(|call| format!("{} {}", call.method, call.path))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_lost_its_lease_writes_nothing_more_and_says_why() {
    let (client, api) = FakeApi::start();
    api.put(POOL, pool(&json!({})));
    let operator = start(client, pending()).await;
    until("engines", || api.object(ENGINES).is_some()).await;
    api.refuse(Refusal {
        method: http::Method::PUT,
        path: "/leases/".to_owned(),
        code: 500,
        reason: "InternalError".to_owned(),
        message: "etcd is away".to_owned(),
        times: 1_000,
    });
    let error = operator.await.expect("no panic").expect_err("it cannot go on");
    assert!(error.to_string().contains("does not lead any more"), "{error}");
    api.edit(POOL, |pool| pool["spec"]["replicas"] = json!(9));
    assert_eq!(writes(&api).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_it_leaves_the_lease_to_the_next_and_writes_nothing_more() {
    let (client, api) = FakeApi::start();
    api.put(POOL, pool(&json!({})));
    let (stop, told) = oneshot::channel::<()>();
    let operator = start(client, async {
        told.await.ok();
        Ok(())
    })
    .await;
    until("engines", || api.object(ENGINES).is_some()).await;
    assert!(holder(&api).starts_with("lmetric-operator_"));
    stop.send(()).expect("it listens");
    operator.await.expect("no panic").expect("a clean end");
    assert_eq!(holder(&api), "");
    api.edit(POOL, |pool| pool["spec"]["replicas"] = json!(9));
    assert_eq!(writes(&api).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_follower_writes_nothing_until_the_leader_has_gone() {
    let (client, api) = FakeApi::start();
    let (stop, told) = oneshot::channel::<()>();
    let leader = start(client.clone(), async {
        told.await.ok();
        Ok(())
    })
    .await;
    until("leader", || !holder(&api).is_empty()).await;
    let first = holder(&api);
    let _follower = start(client, pending()).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(holder(&api), first);
    stop.send(()).expect("it listens");
    leader.await.expect("no panic").expect("a clean end");
    api.put(POOL, pool(&json!({})));
    until("engines by the next leader", || api.object(ENGINES).is_some()).await;
    assert_ne!(holder(&api), first);
}
