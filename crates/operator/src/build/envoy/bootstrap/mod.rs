//! The standalone Envoy's configuration: the light mode of the repository's `envoy/light.yaml`, where every choice stands
//! with its reason, for pickers and engines behind Services.

mod clusters;
#[cfg(test)]
mod tests;

use lmetric_api::pool::FailureMode;
use serde_json::{Value, json};

use crate::{build::ports, validated::Validated};

/// Prefix of the statistics of clients' requests; the drain tool waits for its gauge of active ones.
const STATISTICS: &str = "openai";
/// Header by which the picker names the engine.
pub(in crate::build) const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Largest request body; it is held whole for the picker.
const BODY_BYTES: u32 = 64 << 20;
pub(in crate::build) const NO_PICK: &str = r#"{"error":{"message":"no endpoint picker answered; try again","type":"service_unavailable","param":null,"code":503}}"#;

/// The configuration as YAML.
pub(super) fn yaml(validated: &Validated) -> String {
    serde_yaml::to_string(&bootstrap(validated)).expect("JSON is YAML")
}

fn bootstrap(validated: &Validated) -> Value {
    let mut clusters = vec![
        clusters::engines(),
        clusters::picker(validated),
        clusters::admin(),
    ];
    if validated.pool.spec.routing.failure_mode == FailureMode::FailOpen {
        clusters.push(clusters::any_engine(validated));
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

/// Path of the status listener that tells whether a picker is known.
pub(super) const KNOWS_A_PICKER: &str = "/picker";

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
                "http_filters": [knows_a_picker(), router()],
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

/// Answers [`KNOWS_A_PICKER`] with 200 once a picker is known to be healthy. Until its name resolves that may take the
/// time that the cluster's DNS remembers an absent name for.
fn knows_a_picker() -> Value {
    json!({
        "name": "envoy.filters.http.health_check",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck",
            "pass_through_mode": false,
            "headers": [{"name": ":path", "string_match": {"exact": KNOWS_A_PICKER}}],
            "cluster_min_healthy_percentages": {"picker": {"value": 1.0}},
        },
    })
}

fn address(host: &str, port: i32) -> Value {
    json!({"socket_address": {"address": host, "port_value": port}})
}
