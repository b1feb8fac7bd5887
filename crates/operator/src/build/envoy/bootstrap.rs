//! The standalone Envoy's configuration: the light mode of the repository's `envoy/light.yaml`, where every choice stands
//! with its reason, for pickers and engines behind Services.

use lmetric_api::pool::{Component, FailureMode};
use serde_json::{Value, json};

use crate::{build::ports, validated::Validated};

/// Prefix of the statistics of clients' requests; the drain tool waits for its gauge of active ones.
const STATISTICS: &str = "openai";
/// Header by which the picker names the engine.
pub(in crate::build) const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Largest request body; it is held whole for the picker.
const BODY_BYTES: u32 = 64 << 20;
/// Body of the 503 for a request that no picker decided.
pub(in crate::build) const NO_PICK: &str = r#"{"error":{"message":"no endpoint picker answered; try again","type":"service_unavailable","param":null,"code":503}}"#;

/// The configuration as YAML.
pub(super) fn yaml(validated: &Validated) -> String {
    serde_yaml::to_string(&bootstrap(validated)).expect("JSON is YAML")
}

fn bootstrap(validated: &Validated) -> Value {
    let mut clusters = vec![engines(), picker(validated), admin()];
    if validated.pool.spec.routing.failure_mode == FailureMode::FailOpen {
        clusters.push(any_engine(validated));
    }
    json!({
        "admin": {"address": address("127.0.0.1", ports::ENVOY_ADMIN)},
        "static_resources": {
            "listeners": [proxy(validated), status()],
            "clusters": clusters,
        },
    })
}

fn proxy(validated: &Validated) -> Value {
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": STATISTICS,
        "stream_idle_timeout": "0s",
        "preserve_external_request_id": true,
        "always_set_request_id_in_response": true,
        // before the picker is asked: a client must not choose an address itself
        "early_header_mutation_extensions": [{
            "name": "envoy.http.early_header_mutation.header_mutation",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                "mutations": [{"remove": DESTINATION}],
            },
        }],
        "http_filters": [ext_proc(), router()],
        "route_config": {
            "name": "openai",
            "virtual_hosts": [{"name": "openai", "domains": ["*"], "routes": [picked(), unpicked(validated)]}],
        },
    });
    json!({
        "name": "openai",
        "address": address("0.0.0.0", ports::PROXY),
        // draining closes inbound listeners and leaves the status listener
        "traffic_direction": "INBOUND",
        "per_connection_buffer_limit_bytes": BODY_BYTES,
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    })
}

fn ext_proc() -> Value {
    json!({
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {
                "envoy_grpc": {"cluster_name": "picker", "authority": "picker"},
                "retry_policy": {
                    "retry_on": "connect-failure,refused-stream,unavailable",
                    "num_retries": 2,
                    "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.1s"},
                    // another picker, if there is one
                    "retry_host_predicate": [{
                        "name": "envoy.retry_host_predicates.previous_hosts",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
                        },
                    }],
                    "host_selection_retry_max_attempts": 3,
                },
            },
            // no picker: the request meets the second route, and answers in progress go on
            "failure_mode_allow": true,
            "message_timeout": "2s",
            "processing_mode": {
                "request_header_mode": "SEND",
                "request_body_mode": "BUFFERED",
                "request_trailer_mode": "SKIP",
                "response_header_mode": "SEND",
                "response_body_mode": "NONE",
                "response_trailer_mode": "SKIP",
            },
        },
    })
}

fn router() -> Value {
    json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    })
}

fn picked() -> Value {
    json!({
        "match": {"prefix": "/", "headers": [{"name": DESTINATION, "present_match": true}]},
        "route": {"cluster": "engines", "timeout": "0s"},
    })
}

/// What no picker decided.
fn unpicked(validated: &Validated) -> Value {
    match validated.pool.spec.routing.failure_mode {
        FailureMode::FailOpen => json!({
            "match": {"prefix": "/"},
            "route": {"cluster": "any-engine", "timeout": "0s"},
        }),
        FailureMode::FailClose => json!({
            "match": {"prefix": "/"},
            "direct_response": {"status": 503, "body": {"inline_string": NO_PICK}},
            "response_headers_to_add": [{
                "header": {"key": "content-type", "value": "application/json"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }],
        }),
    }
}

/// `/ready` and `/stats/prometheus` of the admin, and nothing else of it.
fn status() -> Value {
    let route = |path: &str| json!({"match": {"path": path}, "route": {"cluster": "admin"}});
    json!({
        "name": "status",
        "address": address("0.0.0.0", ports::ENVOY_STATUS),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "status",
                "http_filters": [router()],
                "route_config": {
                    "name": "status",
                    "virtual_hosts": [{
                        "name": "status",
                        "domains": ["*"],
                        "routes": [route("/ready"), route("/stats/prometheus")],
                    }],
                },
            },
        }]}],
    })
}

/// Whatever address the picker names.
fn engines() -> Value {
    json!({
        "name": "engines",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "2s",
        "original_dst_lb_config": {"use_http_header": true, "http_header_name": DESTINATION},
        "circuit_breakers": breakers(),
        "typed_extension_protocol_options": engine_protocol(),
    })
}

/// Ready engines by the addresses of their pods.
fn any_engine(validated: &Validated) -> Value {
    let host = host(validated, Component::Engine);
    let endpoints: Vec<_> = ports::http(&validated.pool.spec)
        .each()
        .map(|(_, port)| json!({"endpoint": {"address": address(&host, port)}}))
        .collect();
    json!({
        "name": "any-engine",
        "cluster_type": strict_dns(),
        "lb_policy": "LEAST_REQUEST",
        "connect_timeout": "2s",
        "circuit_breakers": breakers(),
        "load_assignment": {"cluster_name": "any-engine", "endpoints": [{"lb_endpoints": endpoints}]},
        "typed_extension_protocol_options": engine_protocol(),
    })
}

fn picker(validated: &Validated) -> Value {
    let host = host(validated, Component::Picker);
    let plaintext = validated.way_in.listeners.plaintext();
    let port = if plaintext {
        ports::EXT_PROC
    } else {
        ports::EXT_PROC_TLS
    };
    let mut cluster = json!({
        "name": "picker",
        "cluster_type": strict_dns(),
        "lb_policy": "LEAST_REQUEST",
        "connect_timeout": "1s",
        // one stream for each request in flight
        "circuit_breakers": breakers(),
        "load_assignment": {
            "cluster_name": "picker",
            "endpoints": [{"lb_endpoints": [{"endpoint": {
                "address": address(&host, port),
                "health_check_config": {"port_value": ports::HEALTH},
            }}]}],
        },
        "health_checks": [{
            "grpc_health_check": {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"},
            "interval": "1s",
            "no_traffic_interval": "1s",
            "timeout": "1s",
            "unhealthy_threshold": 2,
            "healthy_threshold": 1,
            "transport_socket_match_criteria": {"plaintext": true},
        }],
        // quicker than the health check: a picker that died is left out from the first refused connection
        "outlier_detection": {
            "split_external_local_origin_errors": true,
            "consecutive_local_origin_failure": 1,
            "enforcing_consecutive_local_origin_failure": 100,
            "enforcing_local_origin_success_rate": 0,
            "enforcing_success_rate": 0,
            "enforcing_consecutive_5xx": 0,
            "consecutive_gateway_failure": 5,
            "enforcing_consecutive_gateway_failure": 100,
            "interval": "1s",
            "base_ejection_time": "1s",
            "max_ejection_time": "5s",
            "max_ejection_percent": 50,
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {
                    "initial_stream_window_size": 1_048_576,
                    "initial_connection_window_size": 16_777_216,
                    "connection_keepalive": {"interval": "30s", "timeout": "10s"},
                }},
            },
        },
        "transport_socket_matches": [{
            "name": "plaintext",
            "match": {"plaintext": true},
            "transport_socket": {
                "name": "envoy.transport_sockets.raw_buffer",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"},
            },
        }],
    });
    if !plaintext {
        // made by the picker at its start: there is nothing to verify it against
        cluster["transport_socket"] = json!({
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["h2"]},
            },
        });
    }
    cluster
}

fn admin() -> Value {
    json!({
        "name": "admin",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "admin",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address("127.0.0.1", ports::ENVOY_ADMIN)}}]}],
        },
    })
}

/// The defaults (1,024) would make requests wait for each other.
fn breakers() -> Value {
    let threshold = |priority: &str| {
        json!({
            "priority": priority,
            "max_connections": 100_000,
            "max_pending_requests": 100_000,
            "max_requests": 100_000,
            "max_retries": 1_000,
        })
    };
    json!({"thresholds": [threshold("DEFAULT"), threshold("HIGH")]})
}

/// vLLM closes a connection that was idle for 5 s; a request sent into that closing would fail.
fn engine_protocol() -> Value {
    json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "common_http_protocol_options": {"idle_timeout": "4s"},
            "explicit_http_config": {"http_protocol_options": {}},
        },
    })
}

/// STRICT_DNS: every address of the name is a host. Pods come and go, so the name is looked up more often than by default.
fn strict_dns() -> Value {
    json!({
        "name": "envoy.cluster.dns",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
            "dns_refresh_rate": "2s",
            "dns_lookup_family": "V4_PREFERRED",
            "all_addresses_in_single_endpoint": false,
        },
    })
}

/// The dot at the end spares the pod's search path.
fn host(validated: &Validated, component: Component) -> String {
    format!(
        "{}.{}.svc.{}.",
        component.object_name(&validated.name),
        validated.namespace,
        validated.cluster.domain
    )
}

fn address(host: &str, port: i32) -> Value {
    json!({"socket_address": {"address": host, "port_value": port}})
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::{build::testing, validated::Listeners};

    fn listeners(tls: bool) -> Listeners {
        if tls { Listeners::Tls } else { Listeners::Plaintext }
    }

    fn built(changes: Value, tls: bool) -> Value {
        let mut validated = testing::pool(changes);
        validated.way_in.listeners = listeners(tls);
        serde_yaml::from_str(&yaml(&validated)).unwrap()
    }

    fn routes(bootstrap: &Value) -> &Value {
        &bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]
            ["virtual_hosts"][0]["routes"]
    }

    #[test]
    fn without_a_pick_a_closed_pool_answers_503_and_an_open_one_asks_any_engine() {
        let closed = built(json!({}), false);
        assert_eq!(routes(&closed)[0]["route"]["cluster"], "engines");
        assert_eq!(routes(&closed)[1]["direct_response"]["status"], 503);
        let open = built(
            json!({"routing": {"failureMode": "FailOpen"}, "parallelism": {"data": 2}}),
            false,
        );
        assert_eq!(routes(&open)[1]["route"]["cluster"], "any-engine");
        let endpoints =
            &open["static_resources"]["clusters"][3]["load_assignment"]["endpoints"][0]["lb_endpoints"];
        let address = |at: usize| endpoints[at]["endpoint"]["address"]["socket_address"].clone();
        let host = "qwen-engine.models.svc.cluster.local.";
        assert_eq!(address(0), json!({"address": host, "port_value": 8000}));
        assert_eq!(address(1), json!({"address": host, "port_value": 8001}));
    }

    #[test]
    fn the_body_of_the_503_is_an_error_as_clients_of_openai_know_it() {
        let body: Value = serde_json::from_str(NO_PICK).unwrap();
        assert_eq!(body["error"]["code"], 503);
    }

    #[test]
    fn only_loopback_reaches_the_admin_and_the_status_listener_shows_two_paths() {
        let bootstrap = built(json!({}), false);
        assert_eq!(
            bootstrap["admin"]["address"]["socket_address"]["address"],
            "127.0.0.1"
        );
        let status = &bootstrap["static_resources"]["listeners"][1];
        let paths: Vec<_> = status["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"][0]
            ["routes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|route| route["match"].clone())
            .collect();
        assert_eq!(
            json!(paths),
            json!([{"path": "/ready"}, {"path": "/stats/prometheus"}])
        );
    }

    #[test]
    fn the_picker_is_asked_over_tls_only_where_it_serves_tls() {
        let picker = |tls| built(json!({}), tls)["static_resources"]["clusters"][1].clone();
        assert_eq!(picker(false)["transport_socket"], Value::Null);
        assert_eq!(
            picker(true)["transport_socket"]["name"],
            "envoy.transport_sockets.tls"
        );
    }

    /// What the shipped configuration says in `part`.
    fn shipped(part: impl Fn(&Value) -> Value) -> Value {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../envoy/light.yaml");
        let mut yaml: Value = serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        part(&mut yaml["static_resources"].take())
    }

    #[test]
    fn engines_and_processing_are_those_of_the_shipped_configuration() {
        let ours = built(json!({}), true)["static_resources"].clone();
        let cluster = |from: &Value, name: &str| {
            let clusters = from["clusters"].as_array().unwrap();
            clusters
                .iter()
                .find(|cluster| cluster["name"] == name)
                .unwrap()
                .clone()
        };
        let filter = |from: &Value| {
            from["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0]["typed_config"]
                .clone()
        };
        assert_eq!(
            cluster(&ours, "engines"),
            shipped(|from| cluster(from, "engines"))
        );
        for part in [
            "health_checks",
            "circuit_breakers",
            "transport_socket",
            "typed_extension_protocol_options",
        ] {
            assert_eq!(
                cluster(&ours, "picker")[part],
                shipped(|from| cluster(from, "picker"))[part],
                "{part}"
            );
        }
        for part in ["processing_mode", "failure_mode_allow", "message_timeout"] {
            assert_eq!(filter(&ours)[part], shipped(filter)[part], "{part}");
        }
    }

    #[test]
    fn envoy_itself_accepts_every_form() {
        let envoy = std::env::var_os("LMETRIC_ENVOY").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/envoy"),
            Into::into,
        );
        if !envoy.exists() {
            println!(
                "skipped: no Envoy at {}; `make tools` installs it",
                envoy.display()
            );
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for mode in ["FailClose", "FailOpen"] {
            for tls in [false, true] {
                let mut validated = testing::pool(json!({"routing": {"failureMode": mode}}));
                validated.way_in.listeners = listeners(tls);
                let file = folder.path().join(format!("{mode}-{tls}.yaml"));
                std::fs::write(&file, yaml(&validated)).unwrap();
                let output = Command::new(&envoy)
                    .args(["--mode", "validate", "--log-level", "warning", "-c"])
                    .arg(&file)
                    .output()
                    .unwrap();
                assert!(
                    output.status.success(),
                    "{mode} tls={tls}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                let warnings = String::from_utf8_lossy(&output.stderr);
                assert!(!warnings.contains("deprecated"), "{warnings}");
            }
        }
    }
}
