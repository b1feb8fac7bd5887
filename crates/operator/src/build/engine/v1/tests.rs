use serde_json::{Value, json};

use super::*;
use crate::build::testing;

fn pod(changes: Value) -> Value {
    serde_json::to_value(template(&testing::pool(changes), "lmetric/lmetric:1")).unwrap()["spec"].clone()
}

/// A pool in which as many fields as possible say something.
fn everything() -> Value {
    json!({
        "model": {
            "uri": "hf://Qwen/Qwen3-30B-A3B", "revision": "main", "servedNames": ["qwen3-30b"], "maxModelLen": 60000,
            "dtype": "bfloat16", "quantization": "fp8", "kvCacheDtype": "fp8_e4m3", "trustRemoteCode": true,
            "endpoint": "https://mirror.example", "secretRef": {"name": "hf-token", "key": "token"},
            "adapters": [{"name": "sql", "uri": "hf://acme/sql"}, {"name": "legal", "uri": "pvc://adapters/legal"}],
        },
        "engine": {
            "pullPolicy": "Always", "pullSecrets": [{"name": "registry"}], "args": ["--max-num-batched-tokens", "16384"],
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}], "envFrom": [{"configMapRef": {"name": "nccl"}}],
        },
        "parallelism": {"tensor": 2, "data": 2},
        "placement": {
            "tolerations": [{"key": "team", "operator": "Exists"}], "nodeSelector": {"pool": "gpu"},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"noisy": "true"}}},
            ]}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
            "priorityClassName": "high", "runtimeClassName": "nvidia", "schedulerName": "volcano", "hostNetwork": true,
        },
        "cache": {"type": "PVC"},
        "lifecycle": {"startupTimeout": "20m", "drainTimeout": "90s"},
        "probes": {"readiness": {"timeoutSeconds": 9}},
    })
}

/// Of a pool that says little and of one that says much. More pools, by the whole way from the API: `versions::frozen`.
#[test]
fn the_template_is_byte_for_byte_what_it_was() {
    let kept = include_str!("../../../../testdata/engine-v1.yaml");
    let built: Vec<_> = [json!({}), everything()]
        .into_iter()
        .map(|spec| template(&testing::pool(spec), "lmetric/lmetric:1"))
        .map(|template| serde_yaml::to_string(&template).unwrap())
        .collect();
    let built = built.join("---\n");
    assert_eq!(built, kept);
}

#[test]
fn draining_fits_into_the_grace_period_and_asks_every_rank() {
    let pod = pod(json!({"parallelism": {"data": 2}, "lifecycle": {"drainTimeout": "20s"}}));
    assert_eq!(pod["terminationGracePeriodSeconds"], 50);
    assert_eq!(
        pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"],
        json!([
            "/var/lib/lmetric/bin/lmetric-drain",
            "--pickers",
            "qwen-picker.models.svc:9090",
            "--timeout",
            "20s",
            "--engine",
            "127.0.0.1:8000",
            "--engine",
            "127.0.0.1:8001",
        ])
    );
}

#[test]
fn an_engine_gets_an_accelerator_for_each_part_of_it() {
    let limits = |parallelism: Value| {
        pod(json!({"parallelism": parallelism}))["containers"][0]["resources"]["limits"].clone()
    };
    assert_eq!(
        limits(json!({})),
        json!({"cpu": "16", "memory": "128Gi", "nvidia.com/gpu": "1"})
    );
    assert_eq!(
        limits(json!({"tensor": 2, "pipeline": 2, "data": 2}))["nvidia.com/gpu"],
        "8"
    );
}

#[test]
fn a_pool_may_name_an_account_whose_token_its_engines_see() {
    let own = pod(json!({}));
    assert_eq!(own["serviceAccountName"], "qwen-engine");
    assert_eq!(own["automountServiceAccountToken"], false);
    let named = pod(json!({"serviceAccountName": "s3-reader"}));
    assert_eq!(named["serviceAccountName"], "s3-reader");
    assert_eq!(named["automountServiceAccountToken"], Value::Null);
}
