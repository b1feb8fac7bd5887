//! The engine's environment: caches, credentials, mirrors.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, SecretKeySelector};
use lmetric_api::pool::{CacheType, Source};
use xxhash_rust::xxh3::xxh3_64;

use super::volumes::CACHE_PATH;
use crate::validated::Validated;

/// Variable that tells the drain tool which pod it is in.
pub(super) const POD_UID: &str = "LMETRIC_POD_UID";

/// Variables of the engine's container. One of the pool takes the place of one of ours.
pub(super) fn env(validated: &Validated) -> Vec<EnvVar> {
    let spec = &validated.pool.spec;
    let mut env = vec![EnvVar {
        name: POD_UID.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: "metadata.uid".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }];
    site(&mut env, validated);
    if spec.cache.kind != CacheType::None {
        caches(&mut env, validated);
    }
    for own in &spec.engine.env {
        match env.iter_mut().find(|ours| ours.name == own.name) {
            Some(ours) if ours.name == POD_UID => {}
            Some(ours) => *ours = own.clone(),
            None => env.push(own.clone()),
        }
    }
    env
}

/// Credentials and mirrors of the sites that the model and its adapters come from.
fn site(env: &mut Vec<EnvVar>, validated: &Validated) {
    let model = &validated.pool.spec.model;
    let mut sources =
        std::iter::once(&validated.source).chain(validated.adapters.iter().map(|(_, source)| source));
    let modelscope = sources.any(|source| matches!(source, Source::ModelScope(_)));
    if modelscope {
        env.push(variable("VLLM_USE_MODELSCOPE", "True"));
    }
    if !model.endpoint.is_empty() {
        env.push(if modelscope {
            // a host, while Hugging Face takes a URL
            let host = model.endpoint.split_once("://").map_or("", |(_, host)| host);
            variable("MODELSCOPE_DOMAIN", host.trim_end_matches('/'))
        } else {
            variable("HF_ENDPOINT", model.endpoint.trim_end_matches('/'))
        });
    }
    if let Some(secret) = &model.secret_ref {
        let name = if modelscope {
            "MODELSCOPE_API_TOKEN"
        } else {
            "HF_TOKEN"
        };
        env.push(EnvVar {
            name: name.to_owned(),
            value_from: Some(EnvVarSource {
                secret_key_ref: Some(SecretKeySelector {
                    name: secret.name.clone(),
                    key: secret.key.clone(),
                    optional: Some(false),
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        });
    }
}

/// Downloads are shared by all engines; what is compiled, by those of one image on one kind of accelerator.
fn caches(env: &mut Vec<EnvVar>, validated: &Validated) {
    let spec = &validated.pool.spec;
    let mut key = format!("{}\n{}", spec.engine.image, spec.accelerator.class.as_str());
    for value in spec.accelerator.label_values() {
        key.push('\n');
        key.push_str(&value);
    }
    let compiled = format!("{CACHE_PATH}/compile/{:016x}", xxh3_64(key.as_bytes()));
    env.extend([
        variable("HF_HOME", &format!("{CACHE_PATH}/huggingface")),
        variable("MODELSCOPE_CACHE", &format!("{CACHE_PATH}/modelscope")),
        variable("VLLM_CACHE_ROOT", &format!("{compiled}/vllm")),
        variable("TORCHINDUCTOR_CACHE_DIR", &format!("{compiled}/inductor")),
        variable("TRITON_CACHE_DIR", &format!("{compiled}/triton")),
    ]);
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..EnvVar::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn named(changes: Value, name: &str) -> Option<EnvVar> {
        env(&testing::pool(changes))
            .into_iter()
            .find(|variable| variable.name == name)
    }

    fn value(changes: Value, name: &str) -> Option<String> {
        named(changes, name).and_then(|variable| variable.value)
    }

    #[test]
    fn a_token_comes_from_the_secret_under_its_sites_name() {
        let secret = json!({"name": "hf-token", "key": "token"});
        for (uri, name) in [("hf://a/b", "HF_TOKEN"), ("ms://a/b", "MODELSCOPE_API_TOKEN")] {
            let variable = named(json!({"model": {"uri": uri, "secretRef": secret}}), name).unwrap();
            assert_eq!(
                serde_json::to_value(variable.value_from).unwrap(),
                json!({"secretKeyRef": {"name": "hf-token", "key": "token", "optional": false}})
            );
        }
        assert_eq!(named(json!({}), "HF_TOKEN"), None);
    }

    #[test]
    fn a_mirror_is_a_url_for_one_site_and_a_host_for_the_other() {
        let model = |uri: &str| json!({"model": {"uri": uri, "endpoint": "https://mirror.example/"}});
        assert_eq!(
            value(model("hf://a/b"), "HF_ENDPOINT").as_deref(),
            Some("https://mirror.example")
        );
        assert_eq!(
            value(model("ms://a/b"), "MODELSCOPE_DOMAIN").as_deref(),
            Some("mirror.example")
        );
        assert_eq!(
            value(model("ms://a/b"), "VLLM_USE_MODELSCOPE").as_deref(),
            Some("True")
        );
        assert_eq!(value(model("hf://a/b"), "VLLM_USE_MODELSCOPE"), None);
    }

    #[test]
    fn compiled_code_is_kept_apart_by_image_and_accelerator() {
        let folder = |image: &str, class: &str| {
            let spec = json!({"engine": {"image": image}, "accelerator": {"class": class}, "cache": {"type": "PVC"}});
            value(spec, "VLLM_CACHE_ROOT").unwrap()
        };
        let one = folder("vllm:1", "H20");
        assert!(
            one.starts_with("/var/lib/lmetric/cache/compile/") && one.ends_with("/vllm"),
            "{one}"
        );
        assert_eq!(one, folder("vllm:1", "H20"));
        assert_ne!(one, folder("vllm:2", "H20"));
        assert_ne!(one, folder("vllm:1", "H20-3e"));
        assert_eq!(value(json!({}), "VLLM_CACHE_ROOT"), None);
        assert_eq!(value(json!({}), "HF_HOME"), None);
    }

    #[test]
    fn a_variable_of_the_pool_takes_the_place_of_ours_but_for_the_pods_identity() {
        let spec = json!({"cache": {"type": "PVC"}, "engine": {"env": [
            {"name": "HF_HOME", "value": "/own"},
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": POD_UID, "value": "forged"},
        ]}});
        let built = env(&testing::pool(spec));
        let names: Vec<_> = built.iter().map(|variable| variable.name.as_str()).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        let find = |name: &str| built.iter().find(|variable| variable.name == name).unwrap();
        assert_eq!(find("HF_HOME").value.as_deref(), Some("/own"));
        assert_eq!(find("NCCL_DEBUG").value.as_deref(), Some("INFO"));
        assert!(find(POD_UID).value_from.is_some());
    }
}
