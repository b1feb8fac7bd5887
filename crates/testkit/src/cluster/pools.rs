//! Pools of simulated engines: what one looks like, what its status says.

use serde_json::{Value, json};

use super::{Images, path};

/// Model name of the pools made by [`small_pool`].
pub const MODEL: &str = "qwen2-7b";

/// A pool of simulated engines on small shares of this machine, behind an Envoy of its own. They produce 17 tokens a second, so that a
/// stream of 10 s costs little.
pub fn small_pool(images: &Images, namespace: &str, name: &str, replicas: u32) -> Value {
    let small = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    json!({
        "apiVersion": "lmetric.io/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"uri": "hf://Qwen/Qwen2-7B-Instruct", "servedNames": [MODEL], "maxModelLen": 32_768},
            "engine": {
                "image": images.vllm,
                "env": [{"name": "VLLM_SIM_FLAGS", "value": "--speed 0.25"}],
            },
            "replicas": replicas,
            "resources": {"cpu": "150m", "memory": "128Mi", "sharedMemory": "16Mi"},
            "lifecycle": {"startupTimeout": "1m", "drainTimeout": "20s"},
            "picker": {"resources": small("20m", "64Mi")},
            "gateway": {"standalone": {"replicas": 1, "resources": small("20m", "64Mi")}},
        },
    })
}

/// Path of a pool, or with an empty name of their list.
pub fn pool_path(namespace: &str, name: &str) -> String {
    path("lmetric.io/v1alpha1", "inferencepools", namespace, name)
}

/// The label selector of a pool's pods of one kind.
pub fn selector(pool: &str, component: &str) -> String {
    format!("lmetric.io/pool={pool},app.kubernetes.io/component={component}")
}

/// Status, reason and message of a condition.
pub fn condition(object: &Value, kind: &str) -> (String, String, String) {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    let text = |field: &str| {
        found
            .and_then(|condition| condition[field].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    (text("status"), text("reason"), text("message"))
}

/// Whether a condition is true and about the object's present generation.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).0 == "True"
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// Whether a pool is ready with exactly `replicas` engines, all of the newest template.
pub fn serves_with(pool: &Value, replicas: u64) -> bool {
    let counts = ["replicas", "readyReplicas", "updatedReplicas"];
    is_true(pool, "Ready") && counts.iter().all(|field| pool["status"][*field] == replicas)
}
