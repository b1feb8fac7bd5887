//! A validated pool for tests: a small one of Hugging Face, with what a test changes.

use std::sync::Arc;

use lmetric_api::pool::{InferencePool, IntOrString, RolloutStrategy, Source};
use serde_json::{Value, json};

use crate::validated::{Cluster, Images, Parents, Strategy, Validated, Versions, WayIn};

/// The pool `qwen` of namespace `models`; `changes` are merged into its spec.
pub(crate) fn pool(changes: Value) -> Validated {
    let mut spec = json!({
        "model": {"uri": "hf://Qwen/Qwen3-30B-A3B"},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
    });
    merge(&mut spec, changes);
    let pool: InferencePool = serde_json::from_value(json!({
        "apiVersion": "lmetric.io/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": "qwen", "namespace": "models", "uid": "0b5e"},
        "spec": spec,
    }))
    .expect("a pool of a test can be read");
    let spec = &pool.spec;
    let read = |uri: &str| Source::parse(uri).expect("a source of a test can be read");
    Validated {
        name: "qwen".to_owned(),
        namespace: "models".to_owned(),
        uid: "0b5e".to_owned(),
        source: read(&spec.model.uri),
        adapters: spec
            .model
            .adapters
            .iter()
            .map(|adapter| (adapter.name.clone(), read(&adapter.uri)))
            .collect(),
        engine_affinity: loose(&spec.placement.affinity),
        picker_affinity: loose(&spec.picker.placement.affinity),
        overlay: loose(&spec.pod_template),
        strategy: match spec.rollout.strategy {
            RolloutStrategy::Recreate => Strategy::Recreate,
            RolloutStrategy::RollingUpdate => Strategy::Rolling {
                surge: spec.rollout.surge(),
                unavailable: spec.rollout.unavailable(),
            },
            RolloutStrategy::Auto => Strategy::Rolling {
                surge: IntOrString::Int(1),
                unavailable: IntOrString::Int(0),
            },
        },
        way_in: WayIn::default(),
        parents: Parents {
            gie: spec.gateway.parent_refs.clone(),
            envoy_gateway: spec.gateway.parent_refs.clone(),
        },
        cluster: Cluster::default(),
        pool: Arc::new(pool),
    }
}

/// Images that the operator was told.
pub(crate) fn images() -> Images {
    Images {
        picker: "lmetric/lmetric:1".to_owned(),
        envoy: "envoyproxy/envoy:distroless-v1.40.0".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
    }
}

/// The newest versions.
pub(crate) fn versions() -> Versions {
    Versions {
        template_revision: super::TEMPLATE_REVISION,
        tool_image: "lmetric/lmetric:1".to_owned(),
    }
}

fn loose<T: serde::de::DeserializeOwned + serde::Serialize>(
    written: &lmetric_api::pool::Loose<T>,
) -> Option<T> {
    (!written.is_empty()).then(|| written.read().expect("a loose part of a test can be read"))
}

fn merge(into: &mut Value, changes: Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value,
    }
}
