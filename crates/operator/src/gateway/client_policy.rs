//! What the owner of an Envoy Gateway has to set: a client's own destination header is taken away before the picker is
//! asked, and a request's body may be as large as the picker takes. Both belong to a ClientTrafficPolicy, of which
//! each listener obeys one only; so the operator reads them, and says what to apply.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use kube::ResourceExt as _;
use lmetric_api::foreign::{
    envoy_gateway::{ClientTrafficPolicy, PolicyAncestorStatus, TargetRef, TargetSelector},
    gateway::{self, Gateway, Listener},
};
use serde_json::{Value, json};

use super::Parent;

/// Header by which the picker names the engine.
const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Smallest `connection.bufferLimit`, the largest body that pickers take.
const BUFFER: &str = "64Mi";
const BUFFER_BYTES: u128 = 64 << 20;
/// Longest YAML in a condition; what is longer is told in words.
const LONGEST: usize = 8_192;

/// What is not as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// In words, with what to do.
    pub words: String,
    /// The object to apply, as YAML.
    pub yaml: Option<String>,
}

/// The first thing that the listeners which `parent` leads to lack; `policies` are those of the Gateway's namespace.
pub fn lack(parent: &Parent, gateway: &Gateway, policies: &[Arc<ClientTrafficPolicy>]) -> Option<Lack> {
    parent
        .listeners(gateway)
        .find_map(|listener| lack_of(listener, gateway, policies))
}

fn lack_of(listener: &Listener, gateway: &Gateway, policies: &[Arc<ClientTrafficPolicy>]) -> Option<Lack> {
    let title = format!(
        "{}/{}",
        gateway.namespace().unwrap_or_default(),
        gateway.name_any()
    );
    let Some(policy) = obeyed(listener, gateway, policies) else {
        return Some(Lack {
            words: format!(
                "Gateway {title} has no ClientTrafficPolicy that removes clients' own {DESTINATION} header and takes bodies of {BUFFER}; whoever owns the Gateway has to apply"
            ),
            yaml: text(&fresh(gateway, policies)),
        });
    };
    let name = format!(
        "ClientTrafficPolicy {}/{}",
        policy.namespace().unwrap_or_default(),
        policy.name_any()
    );
    if let Some(refusal) = refusal(policy, gateway) {
        return Some(Lack {
            words: format!(
                "{name} is not accepted ({refusal}), so that Gateway {title} does not obey it; whoever owns it has to correct it"
            ),
            yaml: None,
        });
    }
    let settings = &policy.spec.settings;
    let (removes, takes) = (removes_header(settings), takes_bodies(settings));
    let what = match (removes, takes) {
        (true, true) => return None,
        (false, true) => {
            format!("does not remove clients' own {DESTINATION} header (headers.earlyRequestHeaders.remove)")
        }
        (true, false) => format!("takes smaller bodies than {BUFFER} (connection.bufferLimit)"),
        (false, false) => format!(
            "does not remove clients' own {DESTINATION} header (headers.earlyRequestHeaders.remove), and takes smaller bodies than {BUFFER} (connection.bufferLimit)"
        ),
    };
    Some(Lack {
        words: format!("{name} of Gateway {title} {what}; whoever owns the Gateway has to apply"),
        yaml: text(&mended(policy)),
    })
}

/// The policy that a listener obeys: one for it by name before one for the whole Gateway; the oldest of several. One
/// that Envoy Gateway refuses because of another is none.
fn obeyed<'a>(
    listener: &Listener,
    gateway: &Gateway,
    policies: &'a [Arc<ClientTrafficPolicy>],
) -> Option<&'a ClientTrafficPolicy> {
    let oldest = |section: Option<&str>| {
        policies
            .iter()
            .filter(|policy| targets(policy, gateway, section) && !is_conflicted(policy, gateway))
            .min_by_key(|policy| {
                let age = policy.metadata.creation_timestamp.as_ref().map(|time| time.0);
                (age, policy.name_any())
            })
            .map(Arc::as_ref)
    };
    oldest(Some(&listener.name)).or_else(|| oldest(None))
}

fn targets(policy: &ClientTrafficPolicy, gateway: &Gateway, section: Option<&str>) -> bool {
    let spec = &policy.spec;
    let by_name = |target: &TargetRef| {
        is_gateway(&target.group, &target.kind)
            && Some(&target.name) == gateway.metadata.name.as_ref()
            && target.section_name.as_deref() == section
    };
    let by_labels = |selector: &TargetSelector| {
        let group = selector
            .rest
            .get("group")
            .and_then(Value::as_str)
            .unwrap_or(gateway::GROUP);
        section.is_none() && is_gateway(group, &selector.kind) && selects(selector, gateway.labels())
    };
    spec.target_refs.iter().chain(&spec.target_ref).any(by_name)
        || spec.target_selectors.iter().any(by_labels)
}

fn is_gateway(group: &str, kind: &str) -> bool {
    group == gateway::GROUP && kind == "Gateway"
}

fn selects(selector: &TargetSelector, labels: &BTreeMap<String, String>) -> bool {
    let holds = |requirement: &LabelSelectorRequirement| {
        let value = labels.get(&requirement.key);
        let listed = |value: &String| requirement.values.iter().flatten().any(|one| one == value);
        match requirement.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    selector.match_labels.iter().all(has) && selector.match_expressions.iter().all(holds)
}

fn answers<'a>(
    policy: &'a ClientTrafficPolicy,
    gateway: &'a Gateway,
) -> impl Iterator<Item = &'a PolicyAncestorStatus> {
    let ancestors = policy.status.iter().flat_map(|status| &status.ancestors);
    ancestors.filter(|ancestor| Some(&ancestor.ancestor_ref.name) == gateway.metadata.name.as_ref())
}

fn is_conflicted(policy: &ClientTrafficPolicy, gateway: &Gateway) -> bool {
    answers(policy, gateway)
        .flat_map(|answer| &answer.conditions)
        .any(|condition| {
            condition.type_ == "Accepted" && condition.status == "False" && condition.reason == "Conflicted"
        })
}

fn refusal(policy: &ClientTrafficPolicy, gateway: &Gateway) -> Option<String> {
    answers(policy, gateway)
        .flat_map(|answer| &answer.conditions)
        .find(|condition| condition.type_ == "Accepted" && condition.status == "False")
        .map(|condition| format!("{}: {}", condition.reason, condition.message))
}

type Settings = serde_json::Map<String, Value>;

fn removed(settings: &Settings) -> impl Iterator<Item = &str> {
    let headers = settings.get("headers");
    let list = headers.and_then(|headers| headers.pointer("/earlyRequestHeaders/remove"));
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn removes_header(settings: &Settings) -> bool {
    removed(settings).any(|name| name.eq_ignore_ascii_case(DESTINATION))
}

fn takes_bodies(settings: &Settings) -> bool {
    let limit = settings
        .get("connection")
        .and_then(|connection| connection.get("bufferLimit"));
    let bytes = match limit {
        Some(Value::String(text)) => bytes(text),
        Some(Value::Number(number)) => number.as_u64().map(u128::from),
        _ => None,
    };
    bytes.is_some_and(|bytes| bytes >= BUFFER_BYTES)
}

/// Whole quantities, as the policy's schema takes them: `64Mi`, `100M`, `67108864`.
fn bytes(text: &str) -> Option<u128> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let factor: u128 = match suffix {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "P" => 1_000_000_000_000_000,
        "E" => 1_000_000_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        _ => return None,
    };
    number
        .parse::<u64>()
        .ok()
        .map(|number| u128::from(number) * factor)
}

/// A policy for a Gateway that has none, under a name that is free.
fn fresh(gateway: &Gateway, policies: &[Arc<ClientTrafficPolicy>]) -> Value {
    let base = format!("{}-lmetric", gateway.name_any());
    let is_taken = |name: &String| policies.iter().any(|policy| policy.name_any() == *name);
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let name = std::iter::once(base.clone())
        .chain(numbered)
        .find(|name| !is_taken(name));
    json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "ClientTrafficPolicy",
        "metadata": {"name": name, "namespace": gateway.namespace()},
        "spec": {
            "targetRefs": [{"group": gateway::GROUP, "kind": "Gateway", "name": gateway.name_any()}],
            "connection": {"bufferLimit": BUFFER},
            "headers": {"earlyRequestHeaders": {"remove": [DESTINATION]}},
        },
    })
}

/// The policy as it is, with what it lacks: applied, it loses nothing.
fn mended(policy: &ClientTrafficPolicy) -> Value {
    let mut spec = policy.spec.clone();
    if !takes_bodies(&spec.settings) {
        entry(&mut spec.settings, "connection").insert("bufferLimit".to_owned(), json!(BUFFER));
    }
    if !removes_header(&spec.settings) {
        let mut names: Vec<_> = removed(&spec.settings).map(str::to_owned).collect();
        names.push(DESTINATION.to_owned());
        let early = entry(entry(&mut spec.settings, "headers"), "earlyRequestHeaders");
        early.insert("remove".to_owned(), json!(names));
    }
    let mut metadata = json!({"name": policy.name_any(), "namespace": policy.namespace()});
    if !policy.labels().is_empty() {
        metadata["labels"] = json!(policy.labels());
    }
    let annotations: BTreeMap<_, _> = policy
        .annotations()
        .iter()
        .filter(|(key, _)| !key.starts_with("kubectl.kubernetes.io/"))
        .collect();
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "ClientTrafficPolicy",
        "metadata": metadata,
        "spec": spec,
    })
}

/// The object under `key`, made where it is missing.
fn entry<'a>(of: &'a mut Settings, key: &str) -> &'a mut Settings {
    let value = of.entry(key).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Settings::new());
    }
    value.as_object_mut().expect("was made an object")
}

fn text(policy: &Value) -> Option<String> {
    let yaml = serde_yaml::to_string(policy).ok()?;
    (yaml.len() <= LONGEST).then_some(yaml)
}

#[cfg(test)]
mod tests;
