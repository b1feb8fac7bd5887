//! What several tests need: the installed operator, a namespace with its share of the GPUs, pools.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use lmetric_testkit::cluster::{Cluster, path, pool_path, serves_with, small_pool};
use lmetric_testkit::{Client, wait_until};

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, RwLock, RwLockWriteGuard, Semaphore};

pub(crate) use lmetric_testkit::cluster::{
    MODEL, SYSTEM, condition, image_values, is_true, next_image_values, selector,
};

/// Time for a node's proxy to know a pod that became ready.
const PROXIED: Duration = Duration::from_secs(10);
/// Time for a pool to become ready.
pub(crate) const STARTING: Duration = Duration::from_secs(90);

static INSTALLED: OnceCell<()> = OnceCell::const_new();
/// Held by the test that watches an idle cluster against all others.
static ALONE: RwLock<()> = RwLock::const_new(());

/// Held by the test that kills the operator's leader against those that wait for its words.
static LEADER: RwLock<()> = RwLock::const_new(());

/// While it is held nobody minds that the operator is killed.
pub(crate) async fn leader_to_lose() -> RwLockWriteGuard<'static, ()> {
    LEADER.write().await
}

/// Two nodes of eight.
fn gpus() -> &'static Semaphore {
    static GPUS: OnceLock<Semaphore> = OnceLock::new();
    GPUS.get_or_init(|| Semaphore::new(16))
}

/// A namespace with the operator at work.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
}

/// Runs a test in a namespace of its own that may use `count` GPUs; removes the namespace and all in it afterwards. When the test fails,
/// prints what the namespace held.
pub(crate) async fn on_stage(
    namespace: &str,
    count: u32,
    body: impl AsyncFnOnce(&Stage) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let _shared = ALONE.read().await;
    let _share = gpus().acquire_many(count).await?;
    let cluster = staged(namespace, body).await?;
    cluster.gone(&home(namespace), Duration::from_secs(90)).await
}

/// [`on_stage`] while nobody kills the operator: until the next one leads, no pool says anything.
pub(crate) async fn on_steady_stage(
    namespace: &str,
    count: u32,
    body: impl AsyncFnOnce(&Stage) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    on_stage(namespace, count, async |stage| {
        let _steady = LEADER.read().await;
        body(stage).await
    })
    .await
}

/// [`on_stage`] while no other test runs; nobody waits for what it leaves.
pub(crate) async fn on_stage_alone(
    namespace: &str,
    body: impl AsyncFnOnce(&Stage) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let _alone = ALONE.write().await;
    staged(namespace, body).await?;
    Ok(())
}

async fn staged(
    namespace: &str,
    body: impl AsyncFnOnce(&Stage) -> anyhow::Result<()>,
) -> anyhow::Result<Cluster> {
    let cluster = Cluster::enter().await?;
    installed(&cluster).await?;
    cluster
        .create(
            &path("v1", "namespaces", "", ""),
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        )
        .await?;
    let stage = Stage {
        cluster,
        namespace: namespace.to_owned(),
    };
    let result = body(&stage).await;
    if result.is_err() {
        stage.describe().await;
    }
    stage.cluster.delete(&home(namespace)).await?;
    result?;
    Ok(stage.cluster)
}

fn home(namespace: &str) -> String {
    path("v1", "namespaces", "", namespace)
}

/// Waits until the chart is installed; the first caller does it.
pub(crate) async fn installed(cluster: &Cluster) -> anyhow::Result<()> {
    INSTALLED.get_or_try_init(|| cluster.install_chart()).await?;
    Ok(())
}

impl Stage {
    /// A pool of simulated engines in this namespace; see [`small_pool`].
    pub(crate) fn pool(&self, name: &str, replicas: u32) -> Value {
        small_pool(self.cluster.images(), &self.namespace, name, replicas)
    }

    /// Path of a pool, or of their list.
    pub(crate) fn pool_path(&self, name: &str) -> String {
        pool_path(&self.namespace, name)
    }

    /// Path of another object of this namespace.
    pub(crate) fn path(&self, api_version: &str, plural: &str, name: &str) -> String {
        path(api_version, plural, &self.namespace, name)
    }

    /// Makes a pool and waits until it serves with all its engines.
    pub(crate) async fn serve(&self, pool: &Value) -> anyhow::Result<()> {
        self.cluster.create(&self.pool_path(""), pool).await?;
        let name = pool["metadata"]["name"].as_str().context("a name")?;
        self.ready(name, pool["spec"]["replicas"].as_u64().unwrap_or(1))
            .await?;
        Ok(())
    }

    /// Waits until a pool is ready with exactly `replicas` engines, all of the newest template.
    pub(crate) async fn ready(&self, name: &str, replicas: u64) -> anyhow::Result<Value> {
        let what = format!("pool {name} to be ready with {replicas} engines");
        self.cluster
            .until(&what, STARTING, &self.pool_path(name), |pool| {
                serves_with(pool, replicas)
            })
            .await
    }

    /// Waits until a condition has this reason.
    pub(crate) async fn reason(
        &self,
        name: &str,
        kind: &str,
        reason: &str,
        limit: Duration,
    ) -> anyhow::Result<Value> {
        let what = format!("{kind} of pool {name} to say {reason}");
        self.cluster
            .until(&what, limit, &self.pool_path(name), |pool| {
                condition(pool, kind).1 == reason
            })
            .await
    }

    /// A client of the pool's own Envoy. A ready Envoy is known to the node's proxy a moment later; who asks after that meets what is
    /// really wrong.
    pub(crate) async fn envoy(&self, pool: &str) -> anyhow::Result<Client> {
        let envoy = self
            .cluster
            .service(&self.namespace, &format!("{pool}-envoy"))
            .await?;
        let to = envoy.to();
        let _known = wait_until("the proxy to know the Envoy", PROXIED, || TcpStream::connect(to)).await;
        Ok(envoy)
    }

    /// Prints what the namespace holds.
    pub(crate) async fn describe(&self) {
        let namespace = self.namespace.as_str();
        for args in [
            &[
                "get",
                "lmpool,deployments,pods,services",
                "-o",
                "wide",
                "-n",
                namespace,
            ][..],
            &[
                "get",
                "lmpool",
                "-o",
                "jsonpath={range .items[*]}{.status}{\"\\n\"}{end}",
                "-n",
                namespace,
            ],
            &["get", "events", "--sort-by=.lastTimestamp", "-n", namespace],
            &[
                "logs",
                "--tail=40",
                "--prefix",
                "-l",
                "app.kubernetes.io/name=lmetric",
                "-n",
                namespace,
            ],
            &[
                "logs",
                "--tail=40",
                "--prefix",
                "-l",
                "app.kubernetes.io/name=lmetric",
                "-n",
                SYSTEM,
            ],
        ] {
            match self.cluster.command("kubectl", args, "").await {
                Ok(output) => eprintln!("--- kubectl {}\n{}{}", args.join(" "), output.out, output.err),
                Err(error) => eprintln!("--- kubectl {}: {error:#}", args.join(" ")),
            }
        }
    }
}
