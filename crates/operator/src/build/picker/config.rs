//! The pickers' configuration, in a ConfigMap that they watch.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use lmetric_api::{
    Policy as PolicyKind,
    pool::{Component, Routing, Source},
};
use serde::Serialize;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::tokenizer::{self, Site};
use crate::{
    build::{meta, ports},
    validated::{Listeners, Validated},
};

/// Key of the ConfigMap that holds the configuration.
pub const KEY: &str = "picker.yaml";
/// Requests in flight keep a picker that ends for so long; answers in progress survive its end.
pub(super) const DRAIN_SECONDS: i64 = 30;

/// `lmetric_api`'s picker configuration, as far as a pool decides it; the rest stays at its defaults.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    listen: Listen,
    tls: Tls,
    policy: Value,
    hotspot: &'static str,
    endpoints: Endpoints,
    models: Vec<ModelGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer_cache: Option<&'static str>,
    limits: Limits,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listen {
    ext_proc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ext_proc_tls: Option<String>,
    health: String,
    admin: String,
}

#[derive(Serialize)]
struct Tls {
    mode: &'static str,
}

#[derive(Serialize)]
struct Endpoints {
    kubernetes: Pods,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pods {
    selector: BTreeMap<String, String>,
    ports: Vec<i32>,
    kv_events: KvPorts,
    block_size: i32,
    model: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KvPorts {
    port: i32,
    replay_port: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModelGroup {
    names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<&'static str>,
}

#[derive(Serialize)]
struct Limits {
    drain: String,
}

/// The ConfigMap.
pub(crate) fn build(validated: &Validated) -> ConfigMap {
    let text = serde_yaml::to_string(&config(validated)).expect("a configuration is YAML");
    ConfigMap {
        metadata: meta::of_component(validated, Component::Picker),
        data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
        ..ConfigMap::default()
    }
}

/// A hash of what a picker takes over only when it starts. As an annotation of the pods' template it makes a change of
/// these a rollout; everything else is taken over at once.
pub(super) fn restart_hash(validated: &Validated) -> String {
    let Config { listen, tls, .. } = config(validated);
    let text = serde_yaml::to_string(&(listen, tls)).expect("a configuration is YAML");
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

/// A name, or a map of the name and the parameters that differ from the policy's own.
fn policy(routing: &Routing) -> Value {
    let name = Value::from(routing.policy.as_str());
    // a pool whose parameters do not fit was refused before
    let changes = routing.kind().map(PolicyKind::changes).unwrap_or_default();
    if changes.is_empty() {
        return name;
    }
    let named = std::iter::once(("name".to_owned(), name));
    Value::Object(named.chain(changes).collect())
}

fn config(validated: &Validated) -> Config {
    let spec = &validated.pool.spec;
    let on = |port: i32| format!("0.0.0.0:{port}");
    let names = spec.model.names(&validated.name);
    let listeners = validated.way_in.listeners;
    let site = Site::of(validated);
    Config {
        listen: Listen {
            ext_proc: on(match listeners {
                Listeners::Plaintext | Listeners::Both => ports::EXT_PROC,
                Listeners::Tls => ports::EXT_PROC_TLS,
            }),
            ext_proc_tls: (listeners == Listeners::Both).then(|| on(ports::EXT_PROC_TLS)),
            health: on(ports::HEALTH),
            admin: on(ports::ADMIN),
        },
        tls: Tls {
            mode: if listeners.tls() { "SelfSigned" } else { "Off" },
        },
        policy: policy(&spec.routing),
        hotspot: if spec.routing.hotspot_filter {
            "Filter"
        } else {
            "Off"
        },
        endpoints: Endpoints {
            kubernetes: Pods {
                selector: meta::selector_labels(validated, Component::Engine),
                ports: ports::http(spec).each().map(|(_, port)| port).collect(),
                kv_events: KvPorts {
                    port: ports::events(spec).first,
                    replay_port: ports::replay(spec).first,
                },
                block_size: spec.engine.block_size,
                model: names[0].clone(),
            },
        },
        models: vec![ModelGroup {
            names,
            tokenizer: tokenizer(validated),
            endpoint: site.as_ref().and_then(|site| site.endpoint.clone()),
            token_file: site
                .as_ref()
                .and_then(|site| site.secret.is_some().then_some(tokenizer::TOKEN_FILE)),
        }],
        tokenizer_cache: site.map(|_| tokenizer::CACHE_PATH),
        limits: Limits {
            drain: format!("{DRAIN_SECONDS}s"),
        },
    }
}

/// The tokenizer's folder where pickers can mount it, or the repository that they download it from. From elsewhere (s3://,
/// the engine's own image) they cannot have it, and ask the engines for tokens.
fn tokenizer(validated: &Validated) -> Option<String> {
    let revision = &validated.pool.spec.model.revision;
    let at = |scheme: &str, repository: &str| {
        let revision = if revision.is_empty() {
            String::new()
        } else {
            format!("@{revision}")
        };
        Some(format!("{scheme}://{repository}{revision}"))
    };
    match &validated.source {
        Source::Claim { claim, path } => Some(format!("{}/{path}", super::claim_path(claim))),
        Source::HuggingFace(repository) => at("hf", repository),
        Source::ModelScope(repository) => at("ms", repository),
        Source::File(_) | Source::S3(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn written(validated: &Validated) -> Value {
        let map = build(validated);
        assert_eq!(map.metadata.name.as_deref(), Some("qwen-picker"));
        serde_yaml::from_str(&map.data.unwrap()[KEY]).unwrap()
    }

    #[test]
    fn pickers_are_told_what_the_pool_says() {
        let validated = testing::pool(json!({
            "model": {"uri": "pvc://weights/qwen", "servedNames": ["qwen3-30b", "default"]},
            "engine": {"port": 9000, "blockSize": 32},
            "parallelism": {"data": 2},
            "routing": {"policy": "least-request", "hotspotFilter": false},
        }));
        assert_eq!(
            written(&validated),
            json!({
                "listen": {"extProc": "0.0.0.0:9002", "health": "0.0.0.0:9003", "admin": "0.0.0.0:9090"},
                "tls": {"mode": "Off"},
                "policy": "least-request",
                "hotspot": "Off",
                "endpoints": {"kubernetes": {
                    "selector": {"app.kubernetes.io/component": "engine", "lmetric.io/pool": "qwen"},
                    "ports": [9000, 9001], "kvEvents": {"port": 5557, "replayPort": 5657}, "blockSize": 32,
                    "model": "qwen3-30b",
                }},
                "models": [{"names": ["qwen3-30b", "default"], "tokenizer": "/var/lib/lmetric/claims/weights/qwen"}],
                "limits": {"drain": "30s"},
            })
        );
    }

    #[test]
    fn pickers_can_read_it() {
        for spec in [
            json!({}),
            json!({"model": {"uri": "pvc://weights/qwen"}, "parallelism": {"data": 8}}),
            json!({"model": {"uri": "ms://Qwen/Qwen3-30B-A3B", "revision": "v1.0", "endpoint": "http://mirror:8080/",
                             "secretRef": {"name": "hub"}}}),
            json!({"routing": {"policy": "round-robin", "hotspotFilter": false}}),
            json!({"routing": {"policy": "bailian", "parameters": {"lambda": "0.55"}}}),
        ] {
            let text = build(&testing::pool(spec)).data.unwrap().remove(KEY).unwrap();
            let config = lmetric_api::PickerConfig::parse(&text, std::path::Path::new(KEY)).unwrap();
            assert_eq!(config.limits.drain, std::time::Duration::from_secs(30));
        }
    }

    #[test]
    fn the_tokenizer_comes_from_where_the_model_comes_from() {
        let models = |model: Value| {
            let config = written(&testing::pool(json!({"model": model})));
            (config["models"][0].clone(), config["tokenizerCache"].clone())
        };
        let (model, cache) = models(json!({
            "uri": "hf://Qwen/Qwen2-7B", "revision": "v1", "endpoint": "https://mirror.example",
            "secretRef": {"name": "hub", "key": "token"}, "servedNames": ["q"],
        }));
        assert_eq!(
            model,
            json!({"names": ["q"], "tokenizer": "hf://Qwen/Qwen2-7B@v1", "endpoint": "https://mirror.example",
                   "tokenFile": "/var/run/lmetric/hub/token"})
        );
        assert_eq!(cache, "/var/cache/lmetric/tokenizers");
        let (model, _) = models(json!({"uri": "ms://Qwen/Qwen2-7B", "servedNames": ["q"]}));
        assert_eq!(model, json!({"names": ["q"], "tokenizer": "ms://Qwen/Qwen2-7B"}));
        for uri in ["s3://bucket/q", "file:///models/q"] {
            let (model, cache) = models(json!({"uri": uri, "servedNames": ["q"]}));
            assert_eq!((model, cache), (json!({"names": ["q"]}), Value::Null), "{uri}");
        }
    }

    #[test]
    fn a_mirror_in_the_engines_environment_counts_for_pickers_too() {
        let validated = testing::pool(json!({
            "model": {"uri": "hf://a/b", "endpoint": "https://one.example"},
            "engine": {"env": [{"name": "HF_ENDPOINT", "value": "https://two.example"}]},
        }));
        assert_eq!(written(&validated)["models"][0]["endpoint"], Value::Null);
    }

    #[test]
    fn only_what_needs_a_restart_is_in_the_hash() {
        let hash = |spec: Value, tls: bool| {
            let mut validated = testing::pool(spec);
            if tls {
                validated.way_in.listeners = Listeners::Tls;
            }
            restart_hash(&validated)
        };
        let first = hash(json!({}), false);
        let changed = json!({"model": {"servedNames": ["other"]}, "routing": {"policy": "random"}, "engine": {"port": 9000}});
        assert_eq!(hash(changed, false), first);
        assert_ne!(hash(json!({}), true), first);
    }

    #[rstest]
    #[case(Listeners::Plaintext, json!("0.0.0.0:9002"), Value::Null, "Off")]
    #[case(Listeners::Tls, json!("0.0.0.0:9004"), Value::Null, "SelfSigned")]
    #[case(Listeners::Both, json!("0.0.0.0:9002"), json!("0.0.0.0:9004"), "SelfSigned")]
    fn pickers_serve_where_gateways_ask(
        #[case] listeners: Listeners,
        #[case] first: Value,
        #[case] second: Value,
        #[case] mode: &str,
    ) {
        let mut validated = testing::pool(json!({}));
        validated.way_in.listeners = listeners;
        let written = written(&validated);
        assert_eq!(
            (
                &written["listen"]["extProc"],
                &written["listen"]["extProcTls"],
                &written["tls"]["mode"]
            ),
            (&first, &second, &json!(mode))
        );
        let text = build(&validated).data.unwrap().remove(KEY).unwrap();
        lmetric_api::PickerConfig::parse(&text, std::path::Path::new(KEY)).unwrap();
    }
}
