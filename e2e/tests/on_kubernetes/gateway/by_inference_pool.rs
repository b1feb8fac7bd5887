//! What gateways of the Inference Extension read, against the real CRDs. No such gateway runs here: the test says what its
//! controller would.

use anyhow::ensure;
use http::Method;
use serde_json::{Value, json};

use super::{ENVOY, GATEWAYS, SOON, make_class, make_gateway, pool, route_says};
use crate::support::{Stage, on_stage};

const INFERENCE: &str = "inference.networking.k8s.io/v1";
const ISTIO: &str = "networking.istio.io/v1";
const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/inferencepools.inference.networking.k8s.io";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn gateways_of_the_inference_extension_find_engines_picker_and_route() -> anyhow::Result<()> {
    on_stage("inference-pool", 2, async |stage| {
        let cluster = &stage.cluster;
        make_class(cluster, "inference", "example.com/inference").await?;
        make_class(cluster, "istio", "istio.io/gateway-controller").await?;
        make_gateway(stage, "inference").await?;
        stage
            .cluster
            .create(&stage.pool_path(""), &pool(stage, 2))
            .await?;
        route_says(stage, "Unknown", "Unknown", SOON).await?;
        objects_have_their_form(stage).await?;
        let secure = "the picker to serve TLS where the Service says";
        cluster
            .until(
                secure,
                SOON,
                &stage.path("apps/v1", "deployments", "p-picker"),
                |deployment| deployment["status"]["readyReplicas"] == 1,
            )
            .await?;
        answer(stage, "True").await?;
        route_says(stage, "True", "Accepted", SOON).await?;
        stage.ready("p", 2).await?;
        answer(stage, "False").await?;
        let message = route_says(stage, "False", "NotAccepted", SOON).await?;
        ensure!(message.contains("words of the Gateway"), "{message}");
        classes_are_followed(stage).await?;
        definitions_are_followed(stage).await
    })
    .await
}

async fn objects_have_their_form(stage: &Stage) -> anyhow::Result<()> {
    // the pool may speak of its route before all of it is made
    let made = async |path: String| {
        stage
            .cluster
            .until("the plug to be made", SOON, &path, |_| true)
            .await
    };
    let inference = made(stage.path(INFERENCE, "inferencepools", "p")).await?;
    ensure!(
        inference["spec"]
            == json!({
                "selector": {"matchLabels": {"app.kubernetes.io/component": "engine", "lmetric.io/pool": "p"}},
                "targetPorts": [{"number": 8000}],
                "appProtocol": "http",
                "endpointPickerRef": {
                    "group": "", "kind": "Service", "name": "p-ext-proc", "port": {"number": 9004}, "failureMode": "FailClose",
                },
            }),
        "{}",
        inference["spec"]
    );
    let service = made(stage.path("v1", "services", "p-ext-proc")).await?;
    let ports = service["spec"]["ports"].as_array();
    let listed = ports.into_iter().flatten().find(|port| port["port"] == 9004);
    ensure!(
        listed.is_some_and(|port| port["appProtocol"] == "http2"),
        "{}",
        service["spec"]
    );
    let route = made(stage.path(GATEWAYS, "httproutes", "p")).await?;
    let backend = &route["spec"]["rules"][0]["backendRefs"][0];
    ensure!(
        backend["group"] == "inference.networking.k8s.io"
            && backend["kind"] == "InferencePool"
            && backend["name"] == "p"
            && route["spec"]["parentRefs"][0]["name"] == "public",
        "{}",
        route["spec"]
    );
    Ok(())
}

/// What the Gateway's controller says of the route.
async fn answer(stage: &Stage, accepted: &str) -> anyhow::Result<()> {
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "Said", "message": "words of the Gateway",
            "lastTransitionTime": "2026-11-30T12:00:00Z",
        })
    };
    let parent = json!({
        "parentRef": {"name": "public"},
        "controllerName": "example.com/inference",
        "conditions": [condition("Accepted", accepted), condition("ResolvedRefs", "True")],
    });
    let patch = json!({"status": {"parents": [parent]}});
    let path = format!("{}/status", stage.path(GATEWAYS, "httproutes", "p"));
    let body = Some(("application/merge-patch+json", &patch));
    stage.cluster.request(Method::PATCH, &path, body).await?;
    Ok(())
}

/// The Gateway's class moves to Istio, then to Envoy Gateway: what the one needs and the other does not comes and goes.
async fn classes_are_followed(stage: &Stage) -> anyhow::Result<()> {
    let cluster = &stage.cluster;
    let gateway = stage.path(GATEWAYS, "gateways", "public");
    let class = |name: &str| json!({"spec": {"gatewayClassName": name}});
    cluster.merge(&gateway, &class("istio")).await?;
    let rule = stage.path(ISTIO, "destinationrules", "p-picker");
    let settings = json!([{"port": {"number": 9004}, "tls": {"mode": "SIMPLE", "insecureSkipVerify": true}}]);
    cluster
        .until("the DestinationRule", SOON, &rule, |rule| {
            rule["spec"]["trafficPolicy"]["portLevelSettings"] == settings
        })
        .await?;
    cluster.merge(&gateway, &class("envoy")).await?;
    let policy = stage.path(ENVOY, "envoyextensionpolicies", "p");
    cluster
        .until("the EnvoyExtensionPolicy", SOON, &policy, |_| true)
        .await?;
    for gone in [&rule, &stage.path(INFERENCE, "inferencepools", "p")] {
        cluster.gone(gone, SOON).await?;
    }
    cluster.merge(&gateway, &class("inference")).await?;
    let back = stage.path(INFERENCE, "inferencepools", "p");
    cluster
        .until("GIE's InferencePool", SOON, &back, |_| true)
        .await?;
    let (filter, backend) = ("httproutefilters", "backends");
    for gone in [
        &policy,
        &stage.path(ENVOY, filter, "p"),
        &stage.path(ENVOY, backend, "p-picker"),
    ] {
        cluster.gone(gone, SOON).await?;
    }
    Ok(())
}

/// GIE's definition is deleted, and comes back.
async fn definitions_are_followed(stage: &Stage) -> anyhow::Result<()> {
    let cluster = &stage.cluster;
    let mut definition = cluster.get(CRD).await?;
    cluster.delete(CRD).await?;
    cluster.gone(CRD, SOON).await?;
    let message = route_says(stage, "False", "OptionalApiMissing", SOON).await?;
    ensure!(message.contains("Gateway API Inference Extension"), "{message}");
    definition["metadata"] = json!({
        "name": definition["metadata"]["name"], "annotations": definition["metadata"]["annotations"],
    });
    definition["status"] = Value::Null;
    cluster
        .create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &definition,
        )
        .await?;
    let path = stage.path(INFERENCE, "inferencepools", "p");
    cluster
        .until("GIE's InferencePool, made again", SOON, &path, |_| true)
        .await?;
    Ok(())
}
