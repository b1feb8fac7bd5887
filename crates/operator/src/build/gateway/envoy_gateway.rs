//! The light plug of Envoy Gateway: the picker as an external processor of the route, which sees the request's body and
//! then nothing more, so that a picker that dies cuts no answer.
//!
//! The route needs the header by which the picker names the engine; a request without it gets 503, or, with FailOpen,
//! any engine. So `failOpen` is always true: it is what keeps an answer in progress whole, and it opens to that rule
//! only. The picker is named by a Backend, not by its Service: a policy whose Service has no ready endpoint turns
//! invalid, and Envoy Gateway then rebuilds the listener and ends its streams.
//!
//! What a client's own header may do is up to the Gateway's owner: [`crate::gateway::client_policy`].

use lmetric_api::{
    foreign::{
        envoy_gateway::{
            Backend, BackendEndpoint, BackendSpec, BackendTls, BackendTrafficPolicy,
            BackendTrafficPolicySpec, DirectBody, DirectResponse, EnvoyExtensionPolicy,
            EnvoyExtensionPolicySpec, ExtProc, Fqdn, GROUP, HTTPRouteFilter, HttpRouteFilterSpec, TargetRef,
        },
        gateway::{
            self, BackendRef, HTTPRoute, HttpPathMatch, HttpRouteMatch, HttpRouteRule, HttpRouteSpec,
            HttpRouteTimeouts, HttpValueMatch, ValueMatchType,
        },
    },
    pool::{Component, FailureMode},
};
use serde_json::{Value, json};

use crate::{
    build::{
        envoy::bootstrap::{DESTINATION, NO_PICK},
        meta, ports,
    },
    validated::Validated,
};

/// The route: to the engine that the picker named, and what happens without one.
pub(in crate::build) fn route(validated: &Validated) -> HTTPRoute {
    let spec = &validated.pool.spec;
    let any = if spec.gateway.matches.is_empty() {
        vec![HttpRouteMatch {
            path: Some(HttpPathMatch::default()),
            ..HttpRouteMatch::default()
        }]
    } else {
        spec.gateway.matches.clone()
    };
    let rules = match spec.routing.failure_mode {
        FailureMode::FailClose => vec![to_engines(validated, picked(&any)), refuse(validated, any)],
        FailureMode::FailOpen => vec![to_engines(validated, any)],
    };
    HTTPRoute {
        metadata: meta::of_pool(validated),
        spec: HttpRouteSpec {
            parent_refs: validated.parents.envoy_gateway.clone(),
            hostnames: spec.gateway.hostnames.clone(),
            rules,
        },
        status: None,
    }
}

/// The same requests once the picker has named an engine. Each match is more specific than the one it is made from.
fn picked(any: &[HttpRouteMatch]) -> Vec<HttpRouteMatch> {
    let named = HttpValueMatch {
        kind: ValueMatchType::RegularExpression,
        name: DESTINATION.to_owned(),
        value: ".+".to_owned(),
    };
    any.iter()
        .cloned()
        .map(|mut of| {
            of.headers.push(named.clone());
            of
        })
        .collect()
}

fn to_engines(validated: &Validated, matches: Vec<HttpRouteMatch>) -> HttpRouteRule {
    let service = Component::Engine.object_name(&validated.name);
    HttpRouteRule {
        matches,
        backend_refs: ports::http(&validated.pool.spec)
            .each()
            .map(|(_, port)| BackendRef {
                name: service.clone(),
                port: Some(port),
                ..BackendRef::default()
            })
            .collect(),
        // a long answer takes minutes
        timeouts: Some(HttpRouteTimeouts {
            request: Some("0s".to_owned()),
            ..HttpRouteTimeouts::default()
        }),
        ..HttpRouteRule::default()
    }
}

fn refuse(validated: &Validated, matches: Vec<HttpRouteMatch>) -> HttpRouteRule {
    HttpRouteRule {
        matches,
        filters: vec![json!({
            "type": "ExtensionRef",
            "extensionRef": {"group": GROUP, "kind": "HTTPRouteFilter", "name": validated.name},
        })],
        ..HttpRouteRule::default()
    }
}

/// The 503 of requests that no picker decided.
pub(in crate::build) fn filter(validated: &Validated) -> Option<HTTPRouteFilter> {
    let is_needed = validated.pool.spec.routing.failure_mode == FailureMode::FailClose;
    is_needed.then(|| HTTPRouteFilter {
        metadata: meta::of_pool(validated),
        spec: HttpRouteFilterSpec {
            direct_response: Some(DirectResponse {
                content_type: Some("application/json".to_owned()),
                status_code: 503,
                body: Some(DirectBody {
                    kind: "Inline".to_owned(),
                    inline: Some(NO_PICK.to_owned()),
                }),
            }),
        },
    })
}

/// The picker, by the name of its Service for Gateways.
pub(in crate::build) fn backend(validated: &Validated) -> Backend {
    let plaintext = validated.way_in.listeners.plaintext();
    let fqdn = Fqdn {
        hostname: super::picker_host(validated),
        port: if plaintext {
            ports::EXT_PROC
        } else {
            ports::EXT_PROC_TLS
        },
    };
    Backend {
        metadata: meta::of_component(validated, Component::Picker),
        spec: BackendSpec {
            endpoints: vec![BackendEndpoint { fqdn: Some(fqdn) }],
            // made by the picker at its start: there is nothing to verify it against
            tls: (!plaintext).then_some(BackendTls {
                insecure_skip_verify: true,
            }),
        },
    }
}

/// The picker as the route's processor.
pub(in crate::build) fn extension_policy(validated: &Validated) -> EnvoyExtensionPolicy {
    let picker = BackendRef {
        group: Some(GROUP.to_owned()),
        kind: Some("Backend".to_owned()),
        name: Component::Picker.object_name(&validated.name),
        ..BackendRef::default()
    };
    EnvoyExtensionPolicy {
        metadata: meta::of_pool(validated),
        spec: EnvoyExtensionPolicySpec {
            target_refs: vec![the_route(validated)],
            ext_proc: vec![ExtProc {
                backend_refs: vec![picker],
                backend_settings: Some(backend_settings()),
                message_timeout: Some("2s".to_owned()),
                fail_open: Some(true),
                processing_mode: Some(json!({"request": {"body": "Buffered"}})),
                metadata: None,
            }],
        },
        status: None,
    }
}

/// How Envoy speaks to the picker. A connection is made anew twice a minute, so that one to a node that is gone does
/// not take requests for as long as TCP tries.
fn backend_settings() -> Value {
    json!({
        "circuitBreaker": breakers(),
        "tcpKeepalive": keepalive(),
        "timeout": {"tcp": {"connectTimeout": "1s"}, "http": {"maxConnectionDuration": "30s"}},
        "retry": {"numRetries": 2, "retryOn": {"triggers": ["connect-failure", "refused-stream", "unavailable"]}},
    })
}

/// The engine that the picker named, whatever the load balancer would choose.
pub(in crate::build) fn traffic_policy(validated: &Validated) -> BackendTrafficPolicy {
    BackendTrafficPolicy {
        metadata: meta::of_pool(validated),
        spec: BackendTrafficPolicySpec {
            target_refs: vec![the_route(validated)],
            load_balancer: Some(json!({
                "type": "LeastRequest",
                "endpointOverride": {"extractFrom": [{"header": DESTINATION}]},
            })),
            circuit_breaker: Some(breakers()),
            // vLLM closes a connection that was idle for 5 s; a request sent into that closing would fail
            timeout: Some(json!({"tcp": {"connectTimeout": "2s"}, "http": {"connectionIdleTimeout": "4s"}})),
            tcp_keepalive: Some(keepalive()),
        },
        status: None,
    }
}

/// A stream for each request in flight; the defaults are 1,024.
fn breakers() -> Value {
    json!({"maxConnections": 100_000, "maxPendingRequests": 100_000, "maxParallelRequests": 100_000})
}

/// As in our own Envoy: a stream to a machine that is gone would wait for ever.
fn keepalive() -> Value {
    json!({"idleTime": "5s", "interval": "2s", "probes": 3})
}

fn the_route(validated: &Validated) -> TargetRef {
    TargetRef {
        group: gateway::GROUP.to_owned(),
        kind: "HTTPRoute".to_owned(),
        name: validated.name.clone(),
        section_name: None,
    }
}

#[cfg(test)]
mod tests;
