//! Pools behind somebody's Gateway: a real Envoy Gateway, and the objects that gateways of the Inference Extension read,
//! held against those projects' own CRDs.
//!
//! A suite of its own: `LMETRIC_TESTS=gateway:: e2e/cluster/core.sh BINARIES ENVOY` installs what it needs (e2e/gateway).

mod by_envoy;
mod by_inference_pool;
mod examples;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use lmetric_testkit::Client;
use lmetric_testkit::cluster::Cluster;
use serde_json::{Value, json};

use crate::support::{Stage, condition};

const GATEWAYS: &str = "gateway.networking.k8s.io/v1";
const ENVOY: &str = "gateway.envoyproxy.io/v1alpha1";
/// Time for a controller to answer, and for the operator to hear it; it looks every 30 s whether an API is there.
const SOON: Duration = Duration::from_mins(1);

/// Makes the Gateway `public` of a class.
async fn make_gateway(stage: &Stage, class: &str) -> anyhow::Result<()> {
    let gateway = json!({
        "apiVersion": GATEWAYS,
        "kind": "Gateway",
        "metadata": {"name": "public", "namespace": stage.namespace},
        "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    });
    let list = stage.path(GATEWAYS, "gateways", "");
    stage.cluster.create(&list, &gateway).await?;
    Ok(())
}

/// A client of the Gateway `public`, once that is at work.
async fn client(stage: &Stage) -> anyhow::Result<Client> {
    let path = stage.path(GATEWAYS, "gateways", "public");
    let is_programmed = |gateway: &Value| condition(gateway, "Programmed").0 == "True";
    let gateway = stage
        .cluster
        .until(
            "the Gateway to be programmed",
            Duration::from_mins(1),
            &path,
            is_programmed,
        )
        .await?;
    let address = gateway["status"]["addresses"][0]["value"]
        .as_str()
        .context("no address")?;
    let ip: IpAddr = address.parse().context("the Gateway's address")?;
    Ok(Client::new(SocketAddr::new(ip, 80)))
}

/// A pool behind the Gateway `public`, without an Envoy of its own.
fn pool(stage: &Stage, replicas: u32) -> Value {
    let mut pool = stage.pool("p", replicas);
    pool["spec"]["gateway"] = json!({"parentRefs": [{"name": "public"}]});
    // Envoy gives a picker 2 s for 10 MB, on a machine that other tests share
    pool["spec"]["picker"]["resources"] = json!({"requests": {"cpu": "300m", "memory": "64Mi"}});
    pool
}

/// Waits until RouteAccepted has this status and reason; its message.
async fn route_says(stage: &Stage, status: &str, reason: &str, limit: Duration) -> anyhow::Result<String> {
    let what = format!("RouteAccepted to be {status}, {reason}");
    let says = |pool: &Value| {
        let said = condition(pool, "RouteAccepted");
        (said.0.as_str(), said.1.as_str()) == (status, reason)
    };
    let pool = stage
        .cluster
        .until(&what, limit, &stage.pool_path("p"), says)
        .await?;
    Ok(condition(&pool, "RouteAccepted").2)
}

/// Makes a class that nobody answers for, unless it is there.
async fn make_class(cluster: &Cluster, name: &str, controller: &str) -> anyhow::Result<()> {
    let class = json!({
        "apiVersion": GATEWAYS,
        "kind": "GatewayClass",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    });
    cluster.apply(&class.to_string(), &["--server-side"]).await?;
    Ok(())
}
