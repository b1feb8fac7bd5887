//! The pickers' configuration, in a ConfigMap that they watch.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use lmetric_api::pool::{Component, Source};
use serde::Serialize;

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
    policy: &'static str,
    hotspot: &'static str,
    endpoints: Endpoints,
    models: Vec<ModelGroup>,
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
struct ModelGroup {
    names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
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

fn config(validated: &Validated) -> Config {
    let spec = &validated.pool.spec;
    let on = |port: i32| format!("0.0.0.0:{port}");
    let names = spec.model.names(&validated.name);
    let listeners = validated.way_in.listeners;
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
        policy: spec.routing.policy.as_str(),
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
            tokenizer: tokenizer(&validated.source),
        }],
        limits: Limits {
            drain: format!("{DRAIN_SECONDS}s"),
        },
    }
}

/// Folder with the tokenizer's files, where pickers can mount it; from elsewhere, engines are asked for tokens.
fn tokenizer(source: &Source) -> Option<String> {
    match source {
        Source::Claim { claim, path } => Some(format!("{}/{path}", super::claim_path(claim))),
        Source::HuggingFace(_) | Source::ModelScope(_) | Source::File(_) | Source::S3(_) => None,
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
            json!({"routing": {"policy": "round-robin", "hotspotFilter": false}}),
        ] {
            let text = build(&testing::pool(spec)).data.unwrap().remove(KEY).unwrap();
            let config = lmetric_api::PickerConfig::parse(&text, std::path::Path::new(KEY)).unwrap();
            assert_eq!(config.limits.drain, std::time::Duration::from_secs(30));
        }
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
