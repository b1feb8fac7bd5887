//! What NetworkPolicies mean, as a pure function: for ingress, with selectors, address blocks and runs of ports.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use lmetric_api::pool::IntOrString;

type Labels = BTreeMap<String, String>;

/// Somebody who connects or is connected to.
#[derive(Clone, Debug)]
pub(super) struct Party {
    pub(super) namespace: String,
    pub(super) namespace_labels: Labels,
    pub(super) labels: Labels,
    pub(super) address: IpAddr,
    /// Outside of the cluster no selector fits.
    pub(super) is_pod: bool,
}

/// Whether `from` may open TCP `port` of `to`. Without a policy that selects `to` everything is allowed; with some, what
/// any of them allows.
pub(super) fn allowed(policies: &[NetworkPolicy], from: &Party, to: &Party, port: i32) -> bool {
    let mut applying = policies.iter().filter(|policy| applies(policy, to)).peekable();
    if applying.peek().is_none() {
        return true;
    }
    applying.any(|policy| {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        policy
            .spec
            .iter()
            .flat_map(|spec| spec.ingress.iter().flatten())
            .any(|rule| {
                let peers = rule.from.as_deref().unwrap_or_default();
                let ports = rule.ports.as_deref().unwrap_or_default();
                (peers.is_empty() || peers.iter().any(|peer| is_peer(peer, namespace, from)))
                    && (ports.is_empty() || ports.iter().any(|rule| is_port(rule, port)))
            })
    })
}

fn applies(policy: &NetworkPolicy, to: &Party) -> bool {
    let Some(spec) = &policy.spec else { return false };
    let ingress = spec
        .policy_types
        .as_ref()
        .is_none_or(|types| types.iter().any(|kind| kind == "Ingress"));
    ingress
        && to.is_pod
        && policy.metadata.namespace.as_deref() == Some(&to.namespace)
        && spec
            .pod_selector
            .as_ref()
            .is_none_or(|selector| selects(selector, &to.labels))
}

fn is_peer(peer: &NetworkPolicyPeer, namespace: &str, from: &Party) -> bool {
    let NetworkPolicyPeer {
        ip_block,
        namespace_selector,
        pod_selector,
    } = peer;
    if let Some(block) = ip_block {
        return in_block(block, from.address);
    }
    let namespace_fits = match namespace_selector {
        Some(selector) => selects(selector, &from.namespace_labels),
        None => from.namespace == namespace,
    };
    from.is_pod
        && namespace_fits
        && pod_selector
            .as_ref()
            .is_none_or(|selector| selects(selector, &from.labels))
}

fn is_port(rule: &NetworkPolicyPort, port: i32) -> bool {
    let NetworkPolicyPort {
        end_port,
        port: first,
        protocol,
    } = rule;
    protocol.as_deref().unwrap_or("TCP") == "TCP"
        && match first {
            None => true,
            Some(IntOrString::Int(first)) => (*first..=end_port.unwrap_or(*first)).contains(&port),
            Some(IntOrString::String(name)) => panic!("no named ports here: {name}"),
        }
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let value = labels.get(&requirement.key);
            let listed =
                value.is_some_and(|value| requirement.values.iter().flatten().any(|one| one == value));
            match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                other => panic!("no such operator: {other}"),
            }
        })
}

fn in_block(block: &IPBlock, address: IpAddr) -> bool {
    in_cidr(&block.cidr, address) && !block.except.iter().flatten().any(|cidr| in_cidr(cidr, address))
}

fn in_cidr(cidr: &str, address: IpAddr) -> bool {
    let (network, length) = cidr.split_once('/').expect("a block has a length");
    let length: u32 = length.parse().expect("a block's length is a number");
    match (network.parse().expect("a block has an address"), address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            length == 0 || (u32::from(network) ^ u32::from(address)) >> (32 - length) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            length == 0 || (u128::from(network) ^ u128::from(address)) >> (128 - length) == 0
        }
        _ => false,
    }
}
