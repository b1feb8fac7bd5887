//! What the schema cannot refuse is refused with field and remedy.

use lmetric_api::pool::{self, InferencePool};
use serde_json::{Value, json};

/// What is said about the least pool with `patch` merged into its specification.
fn said(patch: Value) -> Vec<String> {
    let mut object = json!({
        "apiVersion": "lmetric.io/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "qwen2-7b"},
        "spec": {"model": {"uri": "hf://Qwen/Qwen2-7B"}, "engine": {"image": "vllm/vllm-openai:v0.33.0"}},
    });
    merge(&mut object["spec"], patch);
    about(object)
}

fn about(object: Value) -> Vec<String> {
    let pool: InferencePool = serde_json::from_value(object).expect("a pool");
    let invalid = pool::validate(&pool).err().unwrap_or_default();
    invalid.iter().map(ToString::to_string).collect()
}

fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch,
    }
}

fn engine_container(part: Value) -> Value {
    let mut container = json!({"name": "engine"});
    merge(&mut container, part);
    json!({"podTemplate": {"spec": {"containers": [container]}}})
}

#[test]
fn each_fault_is_named_with_field_and_remedy() {
    for (patch, expected) in [
        (
            json!({"placement": {"affinity": {"nodeAfinity": {"a": 1}}}}),
            "spec.placement.affinity holds nodeAfinity, which Kubernetes does not know; check its spelling; correct it, or remove it",
        ),
        (
            json!({"routing": {"policy": "bailian", "parameters": {"lamda": "0.5"}}}),
            "spec.routing.parameters do not fit (policy bailian: unknown field `lamda`, expected lambda); write only parameters",
        ),
        (
            json!({"routing": {"policy": "bailian", "parameters": {"lambda": "7"}}}),
            "spec.routing.parameters do not fit (policy bailian: lambda 7 is out of range",
        ),
        (
            json!({"routing": {"policy": "polyserve"}}),
            "spec.routing.parameters name no model, and polyserve simulates engines; write model: qwen2-7b",
        ),
        (
            json!({"podTemplate": {"no\nde": {"a": 1}}}),
            "spec.podTemplate holds no\\nde, which Kubernetes does not know",
        ),
        (
            json!({"picker": {"placement": {"affinity": {"nodeAffinity": 3}}}}),
            "spec.picker.placement.affinity does not fit: ",
        ),
        (
            json!({"podTemplate": {"spec": {"containers": [{"name": "engine", "securityContext": {"privleged": true}}]}}}),
            "spec.podTemplate holds spec.containers[0].securityContext.privleged, which Kubernetes does not know",
        ),
        (
            json!({"podTemplate": {"metadata": {"labels": {"lmetric.io/pool": "other"}}}}),
            "spec.podTemplate.metadata.labels[lmetric.io/pool] is what Services and policies find the engines by; remove it",
        ),
        (
            json!({"podTemplate": {"metadata": {"labels": {"app.kubernetes.io/component": "x"}}}}),
            "spec.podTemplate.metadata.labels[app.kubernetes.io/component] is what",
        ),
        (
            json!({"podTemplate": {"metadata": {"annotations": {"lmetric.io/template-revision": "77"}}}}),
            "spec.podTemplate.metadata.annotations[lmetric.io/template-revision] is the operator's own; remove it",
        ),
        (
            json!({"podTemplate": {"spec": {"containers": [], "terminationGracePeriodSeconds": 30}}}),
            "spec.podTemplate.spec.terminationGracePeriodSeconds is what draining takes and a margin; remove it and use spec.lifecycle.drainTimeout",
        ),
        (
            json!({"podTemplate": {"spec": {"containers": [{"image": "sidecar"}]}}}),
            "spec.podTemplate.spec.containers[0]",
        ),
        (
            engine_container(json!({"command": ["python"]})),
            "spec.podTemplate.spec.containers[0].command is set by the operator; remove it",
        ),
        (
            engine_container(json!({"args": ["--port=1"]})),
            "spec.podTemplate.spec.containers[0].args is set by the operator; remove it and use spec.engine.args",
        ),
        (
            engine_container(json!({"image": "other"})),
            "spec.podTemplate.spec.containers[0].image is set by the operator; remove it and use spec.engine.image",
        ),
        (
            engine_container(json!({"ports": [{"containerPort": 1}]})),
            "spec.podTemplate.spec.containers[0].ports is set by the operator",
        ),
        (
            engine_container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}})),
            "spec.podTemplate.spec.containers[0].lifecycle is set by the operator",
        ),
        (
            json!({"networkPolicy": {"gatewayFrom": [{}]}}),
            "spec.networkPolicy.gatewayFrom[0] has to hold either ipBlock, or namespaceSelector and podSelector; write one of the two",
        ),
        (
            json!({"networkPolicy": {"monitoringFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}}),
            "spec.networkPolicy.monitoringFrom[0] has to hold either ipBlock",
        ),
        (
            json!({"model": {"adapters": [{"name": "Qwen/Qwen2-7B", "uri": "hf://org/lora"}]}}),
            "spec.model.adapters[0].name \"Qwen/Qwen2-7B\" is the name of the model itself; give the adapter a name of its own",
        ),
        (
            json!({"model": {"uri": "gs://bucket/model"}}),
            "spec.model.uri \"gs://bucket/model\" names no place of a model; write hf://ORG/NAME",
        ),
        (
            json!({"engine": {"args": ["--seed=1", "--tensor_parallel_size=2"]}}),
            "spec.engine.args[1] is --tensor_parallel_size=2, which the operator sets; remove it and use spec.parallelism.tensor",
        ),
        (
            json!({"engine": {"args": ["--api_key=s3cret"]}}),
            "spec.engine.args[0] is --api-key, which makes engines refuse the picker, which reads their models and tokenizes without a key; remove it and let the gateway ask for keys",
        ),
        (
            json!({"engine": {"env": [{"name": "VLLM_PORT", "value": "8000"}]}}),
            "spec.engine.env[VLLM_PORT] is VLLM_PORT, which moves the ports between an engine's own processes",
        ),
        (
            engine_container(json!({"env": [{"name": "PYTHONHASHSEED", "value": "0"}]})),
            "spec.podTemplate.spec.containers[0].env[PYTHONHASHSEED] is PYTHONHASHSEED, which makes the hashes of KV-cache blocks predictable",
        ),
    ] {
        let said = said(patch.clone());
        assert!(
            said.len() == 1 && said[0].starts_with(expected),
            "{patch}: {expected:?} is not what is said: {said:#?}"
        );
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let said = said(json!({
        "networkPolicy": {"gatewayFrom": [{}]},
        "placement": {"affinity": {"nodeAfinity": {"a": 1}}},
    }));
    assert_eq!(said.len(), 2, "{said:#?}");
}

#[test]
fn an_overlay_may_add_to_the_engine_and_beside_it() {
    let overlay = json!({"podTemplate": {
        "metadata": {"annotations": {"a": "b"}, "labels": {"team": "search"}},
        "spec": {
            "containers": [
                {"name": "engine", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
                {"name": "sidecar", "image": "sidecar:1", "command": ["run"], "ports": [{"containerPort": 1}]},
            ],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    }});
    assert_eq!(said(overlay), Vec::<String>::new());
}

#[test]
fn a_name_that_cannot_name_a_service_is_refused() {
    for name in ["qwen2.5-7b", "7b", "Qwen", "a-", &"a".repeat(41)] {
        let said = about(json!({
            "apiVersion": "lmetric.io/v1alpha1",
            "kind": "InferencePool",
            "metadata": {"name": name},
            "spec": {"model": {"uri": "hf://Qwen/Qwen2-7B"}, "engine": {"image": "vllm:v0.33.0"}},
        }));
        assert!(
            said.len() == 1 && said[0].contains("use qwen2-5-7b"),
            "{name}: {said:?}"
        );
    }
}
