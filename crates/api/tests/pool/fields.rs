//! What builders read out of fields.

use lmetric_api::pool::{Accelerator, AcceleratorClass, Engine, Model, Rollout, Source};
use serde_json::{Value, from_value, json};

fn engine(image: &str, version: &str) -> Engine {
    from_value(json!({"image": image, "version": version})).expect("an engine")
}

#[test]
fn the_version_of_vllm_comes_from_the_field_or_the_tag() {
    for (image, version, expected) in [
        ("vllm/vllm-openai:v0.33.0", "", Some((0, 33, 0))),
        ("vllm/vllm-openai:0.18", "", Some((0, 18, 0))),
        ("registry.example:5000/vllm:v0.32.1-cu130", "", Some((0, 32, 1))),
        ("registry.example:5000/vllm", "", None),
        ("vllm/vllm-openai:latest", "", None),
        ("vllm/vllm-openai:nightly", "0.33.0rc1", Some((0, 33, 0))),
        ("vllm@sha256:0123", "v0.33.2", Some((0, 33, 2))),
        ("vllm:v0.33.0@sha256:0123", "", Some((0, 33, 0))),
    ] {
        assert_eq!(
            engine(image, version).vllm_version(),
            expected,
            "{image} {version}"
        );
    }
}

#[test]
fn a_source_is_read_out_of_its_uri() {
    let claim = |claim: &str, path: &str| Source::Claim {
        claim: claim.to_owned(),
        path: path.to_owned(),
    };
    for (uri, expected) in [
        (
            "hf://Qwen/Qwen2-7B",
            Source::HuggingFace("Qwen/Qwen2-7B".to_owned()),
        ),
        (
            "ms://Qwen/Qwen2-7B",
            Source::ModelScope("Qwen/Qwen2-7B".to_owned()),
        ),
        ("pvc://models/qwen/7b", claim("models", "qwen/7b")),
        ("pvc://models", claim("models", "")),
        ("file:///models/qwen", Source::File("/models/qwen".to_owned())),
        ("s3://bucket/qwen", Source::S3("s3://bucket/qwen".to_owned())),
    ] {
        assert_eq!(Source::parse(uri), Ok(expected), "{uri}");
    }
    for uri in [
        "",
        "hf://",
        "qwen",
        "gs://a/b",
        "file://models",
        "pvc:///a",
        "pvc://a/../b",
    ] {
        assert!(Source::parse(uri).is_err(), "{uri:?} was taken");
    }
}

#[test]
fn a_model_without_served_names_is_asked_for_by_its_repository_or_its_pool() {
    let model = |value: Value| from_value::<Model>(value).expect("a model");
    assert_eq!(
        model(json!({"uri": "hf://Qwen/Qwen2-7B"})).names("p"),
        ["Qwen/Qwen2-7B"]
    );
    assert_eq!(model(json!({"uri": "pvc://models/qwen"})).names("p"), ["p"]);
    let named = model(json!({"uri": "hf://Qwen/Qwen2-7B", "servedNames": ["a", "b"]}));
    assert_eq!(named.names("p"), ["a", "b"]);
}

#[test]
fn a_class_knows_its_labels_until_the_pool_tells_others() {
    let mut accelerator = Accelerator::default();
    assert_eq!(accelerator.label_key(), "nvidia.com/gpu.product");
    assert_eq!(accelerator.label_values(), ["NVIDIA-H20"]);
    accelerator.class = AcceleratorClass::H20Large;
    assert_eq!(accelerator.label_values(), ["NVIDIA-H20-3e"]);
    accelerator.product_label_key = "cloud.example/gpu".to_owned();
    accelerator.product_label_values = vec!["H20-141".to_owned()];
    assert_eq!(accelerator.label_key(), "cloud.example/gpu");
    assert_eq!(accelerator.label_values(), ["H20-141"]);
}

#[test]
fn a_rollout_is_stuck_when_neither_side_can_move() {
    for (value, stuck) in [
        (json!({}), false),
        (json!({"maxUnavailable": 0}), true),
        (json!({"maxUnavailable": "0%", "maxSurge": "0%"}), true),
        (json!({"maxUnavailable": 0, "maxSurge": "10%"}), false),
        (json!({"maxSurge": 0}), false),
    ] {
        let rollout: Rollout = from_value(value.clone()).expect("a rollout");
        assert_eq!(rollout.is_stuck(), stuck, "{value}");
    }
}
