//! Where the standalone Envoy sends what: engines, pickers, its own admin.

use lmetric_api::pool::Component;
use serde_json::{Value, json};

use super::{DESTINATION, address};
use crate::{build::ports, validated::Validated};

/// Whatever address the picker names.
pub(super) fn engines() -> Value {
    json!({
        "name": "engines",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "2s",
        "original_dst_lb_config": {"use_http_header": true, "http_header_name": DESTINATION},
        "circuit_breakers": breakers(),
        "upstream_connection_options": keepalive(),
        "upstream_bind_config": {"socket_options": [user_timeout()]},
        "typed_extension_protocol_options": engine_protocol(),
    })
}

/// Ready engines by the addresses of their pods.
pub(super) fn any_engine(validated: &Validated) -> Value {
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
        "upstream_connection_options": keepalive(),
        "upstream_bind_config": {"socket_options": [user_timeout()]},
        "load_assignment": {"cluster_name": "any-engine", "endpoints": [{"lb_endpoints": endpoints}]},
        "typed_extension_protocol_options": engine_protocol(),
    })
}

pub(super) fn picker(validated: &Validated) -> Value {
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
            "no_traffic_healthy_interval": "1s",
            "unhealthy_interval": "0.25s",
            "no_traffic_interval": "0.25s",
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

pub(super) fn admin() -> Value {
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

/// A stream has no time limit: one whose machine is gone would wait for ever. A kernel answers for an engine that computes.
fn keepalive() -> Value {
    json!({"tcp_keepalive": {"keepalive_time": 5, "keepalive_interval": 2, "keepalive_probes": 3}})
}

/// The same for a request that was written and never acknowledged; the kernel would try for a quarter of an hour. Level and
/// name are those of `TCP_USER_TIMEOUT`, in milliseconds.
fn user_timeout() -> Value {
    json!({"level": 6, "name": 18, "int_value": 10_000, "state": "STATE_PREBIND"})
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
