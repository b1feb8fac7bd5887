//! The picker in the place of the Inference Extension's own: in front of an InferencePool that somebody else made, with
//! that picker's flags, and with no more rights than it names.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use lmetric_testkit::cluster::{Images, PodState};
use lmetric_testkit::ext_proc::{Choice, Exchange, channel};
use lmetric_testkit::{Admin, chat, poll};
use serde_json::{Value, json};

use crate::support::{MODEL, on_stage};

const CRD: &str = "e2e/testdata/gie/inferencepools.yaml";
const ENGINES: &str = "app=vllm";
const SOON: Duration = Duration::from_mins(1);
/// One for each data-parallel rank of a pod.
const PORTS: [u16; 2] = [8000, 8001];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn the_picker_stands_in_for_the_inference_extensions_own() -> anyhow::Result<()> {
    on_stage("stand-in", 0, async |stage| {
        let definition = stage.cluster.root().join(CRD).display().to_string();
        stage
            .cluster
            .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &definition])
            .await?;
        stage
            .cluster
            .kubectl(&[
                "wait",
                "--for=condition=Established",
                "--timeout=30s",
                "-f",
                &definition,
            ])
            .await?;
        for object in objects(stage.cluster.images(), &stage.namespace) {
            stage
                .cluster
                .apply(&object.to_string(), &["-n", &stage.namespace])
                .await?;
        }
        let pickers = stage
            .cluster
            .ready_pods(&stage.namespace, "app=picker", 1, SOON)
            .await?;
        let engines = stage
            .cluster
            .ready_pods(&stage.namespace, ENGINES, 2, SOON)
            .await?;
        let admin = Admin::new(stage.cluster.pod(&pickers[0], 9090)?.to());
        admin.ready_endpoints(4, SOON).await?;
        let gateway = channel(stage.cluster.pod(&pickers[0], 9002)?.to(), true)?;

        // requests that go on: each next one finds an idle rank
        let mut open = Vec::new();
        let mut chosen = BTreeSet::new();
        for at in 0..4 {
            let question = chat(MODEL, &format!("question {at}"), 8, true);
            let (exchange, choice) = Exchange::chat(&gateway, &question).await?;
            if let Choice::Endpoint(endpoint) = choice {
                chosen.insert(endpoint);
            }
            open.push(exchange);
        }
        ensure!(chosen == addresses(&engines)?, "chosen: {chosen:?}");
        // once every engine has told what it serves
        let nobody = chat("nobody", "hello", 8, false);
        poll(
            "a model that nobody serves to be refused",
            SOON,
            Duration::from_millis(300),
            || async {
                match Exchange::chat(&gateway, &nobody).await.map(|(_, choice)| choice) {
                    Ok(Choice::Answer(404)) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            },
        )
        .await?;

        let leaving = stage.path("v1", "pods", &engines[0].name);
        stage.cluster.delete(&leaving).await?;
        admin.ready_endpoints(2, SOON).await?;
        let stays = addresses(&engines[1..])?;
        for _ in 0..6 {
            let question = chat(MODEL, "still there?", 8, true);
            let (exchange, choice) = Exchange::chat(&gateway, &question).await?;
            ensure!(
                matches!(choice, Choice::Endpoint(endpoint) if stays.contains(&endpoint)),
                "{choice:?} after one engine left"
            );
            open.push(exchange);
        }
        Ok(())
    })
    .await
}

fn addresses(engines: &[PodState]) -> anyhow::Result<BTreeSet<SocketAddr>> {
    let of = |engine: &PodState, port: u16| {
        let ip = engine
            .ip
            .ok_or_else(|| anyhow::anyhow!("{} has no address", engine.name))?;
        Ok(SocketAddr::new(ip, port))
    };
    engines
        .iter()
        .flat_map(|engine| PORTS.map(|port| of(engine, port)))
        .collect()
}

/// What the other person made, and a picker that knows of it by flags alone.
fn objects(images: &Images, namespace: &str) -> Vec<Value> {
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["inference.networking.k8s.io"], "resources": ["inferencepools"], "verbs": ["get", "list", "watch"]},
    ]);
    let named = |name: &str| json!({"name": name, "namespace": namespace});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named("picker")}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": named("picker"), "rules": rules}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": named("picker"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "picker"},
            "subjects": [{"kind": "ServiceAccount", "name": "picker", "namespace": namespace}],
        }),
        json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": named("theirs"),
            "spec": {
                "selector": {"matchLabels": {"app": "vllm"}},
                "targetPorts": PORTS.map(|port| json!({"number": port})),
                "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
            },
        }),
        picker(images, namespace),
    ];
    objects.extend(["engine-0", "engine-1"].map(|name| engine(images, namespace, name)));
    objects
}

fn picker(images: &Images, namespace: &str) -> Value {
    let args = [
        "--pool-name",
        "theirs",
        "--pool-namespace",
        namespace,
        "--pool-group",
        "inference.networking.k8s.io",
        "--grpc-port",
        "9002",
        "--grpc-health-port",
        "9003",
        "--metrics-port",
        "9090",
        "--zap-encoder",
        "json",
        "--config-file",
        "/config/default-plugins.yaml",
    ];
    let probe = json!({"grpc": {"port": 9003, "service": "inference-extension"}, "periodSeconds": 1});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "picker", "namespace": namespace, "labels": {"app": "picker"}},
        "spec": {
            "serviceAccountName": "picker", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "epp", "image": images.lmetric, "imagePullPolicy": "Never", "command": ["/lmetric-epp"], "args": args,
                "readinessProbe": probe, "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
            }],
        },
    })
}

fn engine(images: &Images, namespace: &str, name: &str) -> Value {
    let events = json!({
        "enable_kv_cache_events": true, "publisher": "zmq", "topic": "kv-events",
        "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657",
    });
    let args = [
        "serve",
        "Qwen/Qwen2-7B-Instruct",
        "--served-model-name",
        MODEL,
        "--port",
        "8000",
        "--data-parallel-size",
        "2",
        "--data-parallel-multi-port-external-lb",
        "--enable-prefix-caching",
        "--kv-events-config",
        &events.to_string(),
    ]
    .map(str::to_owned);
    let probe = json!({"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 1});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "vllm"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "vllm", "image": images.vllm, "imagePullPolicy": "Never", "command": ["vllm"], "args": args,
                "readinessProbe": probe, "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
            }],
        },
    })
}
