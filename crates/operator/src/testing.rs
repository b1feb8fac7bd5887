//! Pools, pods and facts for tests. The time is always the same.

use std::{path::PathBuf, sync::Arc};

use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use lmetric_api::pool::{Component, InferencePool};
use serde_json::{Value, json};

use crate::{
    dereference::Facts,
    gateway::Gateways,
    status::{
        fields::Fields,
        pod::{Limits, Startup},
    },
    validate::validate,
    validated::{Cluster, Images, Validated},
    watch::{Apis, Reach},
};

/// Every optional API is there, and all of the cluster may be read.
pub(crate) const ALL_APIS: Apis = Apis {
    gie_pools: true,
    routes: true,
    pod_monitors: true,
    prometheus_rules: true,
    envoy_gateway: true,
    destination_rules: true,
    gateways: Reach::Cluster,
    gateway_classes: Reach::Cluster,
    client_policies: Reach::Cluster,
};

/// The checkout. Asked at run time: those that share a target folder may share this program.
pub(crate) fn repository() -> PathBuf {
    let package: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.join("../..")
}

pub(crate) fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().expect("a time")
}

/// So many seconds before [`now`]; after it if negative.
pub(crate) fn time(seconds: i64) -> Time {
    Time(now() - seconds.seconds())
}

pub(crate) fn ago(seconds: i64) -> Value {
    serde_json::to_value(time(seconds)).expect("a time is JSON")
}

pub(crate) fn limits(volumes: Option<&str>) -> Limits<'_> {
    Limits {
        now: now(),
        container: "engine",
        fields: Fields::of(Component::Engine),
        resource: "nvidia.com/gpu",
        startup: Startup::of(&pool(&json!({})).spec),
        volumes,
        claim: "look at claim c",
    }
}

/// The pool `qwen` of namespace `models` with changes of its spec.
pub(crate) fn pool(change: &Value) -> InferencePool {
    let mut spec = json!({
        "model": {"uri": "hf://Qwen/Qwen3-30B-A3B"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "replicas": 4,
    });
    merge(&mut spec, change);
    serde_json::from_value(json!({
        "apiVersion": "lmetric.io/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "qwen", "namespace": "models", "uid": "0b5e", "generation": 1},
        "spec": spec,
    }))
    .expect("a pool")
}

pub(crate) fn facts(change: &Value) -> Facts {
    facts_with(change, Apis::default())
}

pub(crate) fn facts_with(change: &Value, apis: Apis) -> Facts {
    Facts {
        pool: Arc::new(pool(change)),
        now: now(),
        apis,
        engines: None,
        replica_sets: Vec::new(),
        engine_pods: Vec::new(),
        picker_pods: Vec::new(),
        envoy_pods: Vec::new(),
        claim: None,
        gateways: Gateways::default(),
        volume_trouble: None,
        last_ending: None,
        claim_trouble: None,
    }
}

pub(crate) fn validated(change: &Value) -> Validated {
    validate(&facts(change), &Cluster::default()).expect("a good pool")
}

pub(crate) fn images() -> Images {
    Images {
        picker: "lmetric:1".to_owned(),
        envoy: "envoy:1".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
    }
}

/// A pod whose template is called as its name.
#[expect(clippy::needless_pass_by_value, reason = "so that callers write json!({…})")]
pub(crate) fn pod(name: &str, status: Value) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "models", "uid": name, "labels": {"pod-template-hash": name}},
        "spec": {"containers": [], "nodeName": "node-1"},
        "status": status,
    }))
    .expect("a pod")
}

pub(crate) fn ready_status() -> Value {
    json!({
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": ago(60)},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": ago(60)},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(90)},
        ],
        "containerStatuses": [{
            "name": "engine", "image": "vllm:1", "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": ago(90)}},
        }],
    })
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value.clone(),
    }
}
