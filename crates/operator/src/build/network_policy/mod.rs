//! NetworkPolicies: who may open which port of the pool's pods. Nothing is said about where pods may connect to.

#[cfg(test)]
mod evaluate;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use lmetric_api::pool::{Component, InferencePoolSpec, IntOrString};

use super::{
    meta,
    ports::{self, Ranks},
};
use crate::validated::Validated;

/// Label that every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// One for each component, unless the pool wants none.
pub(super) fn build(validated: &Validated) -> Vec<NetworkPolicy> {
    let spec = &validated.pool.spec;
    if !spec.network_policy.enabled {
        return Vec::new();
    }
    let mut policies = vec![engines(validated), pickers(validated)];
    if spec.gateway.standalone.is_some() {
        policies.push(envoy(validated));
    }
    policies
}

/// Whether nobody said where requests come from, so that everybody may send them: to engines, and to the pickers'
/// ext-proc. The pool's status tells it.
pub fn is_open(spec: &InferencePoolSpec) -> bool {
    let only_standalone = spec.gateway.standalone.is_some() && spec.gateway.parent_refs.is_empty();
    spec.network_policy.enabled && spec.network_policy.gateway_from.is_empty() && !only_standalone
}

/// Events carry prompts' tokens in the clear: this pool's pickers and nobody else, always.
fn engines(validated: &Validated) -> NetworkPolicy {
    let spec = &validated.pool.spec;
    let pickers = vec![pods(validated, Component::Picker)];
    let requests = gateways(validated).map(|mut peers| {
        peers.extend(pickers.clone());
        // engines serve metrics on the port of requests
        peers.extend(spec.network_policy.monitoring_from.clone());
        peers
    });
    policy(
        validated,
        Component::Engine,
        vec![
            rule(
                Some(pickers.clone()),
                vec![run(ports::events(spec)), run(ports::replay(spec))],
            ),
            rule(requests, vec![run(ports::http(spec))]),
        ],
    )
}

/// Engines ask to be taken out before they end. On the node's network they cannot be told from others and are not let
/// in; then their own count decides.
fn pickers(validated: &Validated) -> NetworkPolicy {
    let spec = &validated.pool.spec;
    let mut admin = vec![pods(validated, Component::Engine), operator(validated)];
    admin.extend(spec.network_policy.monitoring_from.clone());
    let mut asked: Vec<_> = ports::ext_proc(validated.way_in.listeners)
        .map(|(_, port)| one(port))
        .collect();
    asked.push(one(ports::HEALTH));
    policy(
        validated,
        Component::Picker,
        vec![
            rule(gateways(validated), asked),
            rule(Some(admin), vec![one(ports::ADMIN)]),
        ],
    )
}

/// The way in is open; statistics are for monitoring.
fn envoy(validated: &Validated) -> NetworkPolicy {
    let mut rules = vec![rule(None, vec![one(ports::PROXY)])];
    let monitoring = &validated.pool.spec.network_policy.monitoring_from;
    if !monitoring.is_empty() {
        rules.push(rule(Some(monitoring.clone()), vec![one(ports::ENVOY_STATUS)]));
    }
    policy(validated, Component::Envoy, rules)
}

/// Where requests come from; `None` for everywhere.
fn gateways(validated: &Validated) -> Option<Vec<NetworkPolicyPeer>> {
    let spec = &validated.pool.spec;
    if is_open(spec) {
        return None;
    }
    let mut peers = spec.network_policy.gateway_from.clone();
    if spec.gateway.standalone.is_some() {
        peers.push(pods(validated, Component::Envoy));
    }
    Some(peers)
}

fn policy(
    validated: &Validated,
    component: Component,
    ingress: Vec<NetworkPolicyIngressRule>,
) -> NetworkPolicy {
    NetworkPolicy {
        metadata: meta::of_component(validated, component),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(meta::selector(validated, component)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(ingress),
            ..NetworkPolicySpec::default()
        }),
    }
}

/// An empty list of peers would let everybody in, so that no caller may pass one.
fn rule(from: Option<Vec<NetworkPolicyPeer>>, ports: Vec<NetworkPolicyPort>) -> NetworkPolicyIngressRule {
    debug_assert!(from.as_ref().is_none_or(|peers| !peers.is_empty()));
    NetworkPolicyIngressRule {
        from,
        ports: Some(ports),
    }
}

fn pods(validated: &Validated, component: Component) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        pod_selector: Some(meta::selector(validated, component)),
        ..NetworkPolicyPeer::default()
    }
}

fn operator(validated: &Validated) -> NetworkPolicyPeer {
    NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(
                NAMESPACE_NAME.to_owned(),
                validated.cluster.operator_namespace.clone(),
            )])),
            ..LabelSelector::default()
        }),
        pod_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(
                "app.kubernetes.io/component".to_owned(),
                "operator".to_owned(),
            )])),
            ..LabelSelector::default()
        }),
        ..NetworkPolicyPeer::default()
    }
}

fn one(port: i32) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some("TCP".to_owned()),
        ..NetworkPolicyPort::default()
    }
}

fn run(ranks: Ranks) -> NetworkPolicyPort {
    NetworkPolicyPort {
        end_port: (ranks.count > 1).then(|| ranks.last()),
        ..one(ranks.first)
    }
}
