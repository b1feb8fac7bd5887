//! What CEL cannot say about a pool.
//!
//! The API server has checked everything that has a schema. What is left are the parts without one, and comparisons
//! across what CEL does not see. A pool that was stored before a rule existed can break any rule, so those that a
//! builder relies on are checked here again.

mod overlay;

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use kube::ResourceExt as _;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    flags,
    gateway::NetworkPolicySpec,
    loose::Loose,
    model::{Model, Source},
    names::MAX_NAME,
    refused::{self, Refused},
    routing::Routing,
    spec::{InferencePool, InferencePoolSpec},
};
use crate::error::on_one_line;

/// Why a pool cannot be built: the field, what is wrong with it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", line(.field, .problem, .remedy))]
pub struct Invalid {
    /// Path of the field, such as `spec.placement.affinity`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// One line, whatever keys and values are quoted in it.
fn line(field: &str, problem: &str, remedy: &str) -> String {
    on_one_line(format!("{field} {problem}; {remedy}"))
}

impl Invalid {
    fn new(field: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// Checks `pool`; all that is wrong with it, in the order of its fields.
pub fn validate(pool: &InferencePool) -> Result<(), Vec<Invalid>> {
    let InferencePoolSpec {
        model,
        engine,
        placement,
        routing,
        picker,
        network_policy,
        pod_template,
        ..
    } = &pool.spec;
    let mut found = Vec::new();
    let name = pool.name_any();
    check_name(&name, &mut found);
    check_model(model, &name, &mut found);
    for (at, arg) in engine.args.iter().enumerate() {
        if let Some(instead) = flags::instead_of(arg) {
            found.push(Invalid::new(
                format!("spec.engine.args[{at}]"),
                format!("is {arg}, which the operator sets"),
                format!("remove it and use {instead}"),
            ));
        }
        if let Some(refused) = refused::flag(arg) {
            // the value may be a secret
            found.push(Invalid::new(
                format!("spec.engine.args[{at}]"),
                problem(refused),
                refused.remedy,
            ));
        }
    }
    for variable in &engine.env {
        if let Some(refused) = refused::variable(&variable.name) {
            let field = format!("spec.engine.env[{}]", variable.name);
            found.push(Invalid::new(field, problem(refused), refused.remedy));
        }
    }
    check_routing(routing, &mut found);
    check_readable("spec.placement.affinity", &placement.affinity, &mut found);
    check_readable(
        "spec.picker.placement.affinity",
        &picker.placement.affinity,
        &mut found,
    );
    check_peers(network_policy, &mut found);
    match pod_template.read() {
        Ok(template) => overlay::check(&template, &mut found),
        Err(problem) => found.push(unreadable("spec.podTemplate", &problem)),
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn problem(refused: Refused) -> String {
    format!("is {}, which {}", refused.name, refused.why)
}

fn check_name(name: &str, found: &mut Vec<Invalid>) {
    let label = name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !label || name.len() > MAX_NAME {
        found.push(Invalid::new(
            "metadata.name",
            format!("{name:?} cannot name a Service"),
            format!(
                "make a pool whose name has at most {MAX_NAME} lower-case letters, digits and dashes, a letter first; \
                 instead of qwen2.5-7b use qwen2-5-7b"
            ),
        ));
    }
}

fn check_model(model: &Model, pool: &str, found: &mut Vec<Invalid>) {
    let adapters = model.adapters.iter().enumerate();
    let uris = adapters
        .clone()
        .map(|(at, adapter)| (format!("spec.model.adapters[{at}].uri"), adapter.uri.as_str()));
    for (field, uri) in std::iter::once(("spec.model.uri".to_owned(), model.uri.as_str())).chain(uris) {
        if Source::parse(uri).is_err() {
            found.push(Invalid::new(
                field,
                format!("{uri:?} names no place of a model"),
                "write hf://ORG/NAME, ms://ORG/NAME, pvc://CLAIM/PATH, file:///PATH or s3://BUCKET/PATH",
            ));
        }
    }
    let names = model.names(pool);
    for (at, adapter) in adapters {
        if names.contains(&adapter.name) {
            found.push(Invalid::new(
                format!("spec.model.adapters[{at}].name"),
                format!("{:?} is the name of the model itself", adapter.name),
                "give the adapter a name of its own",
            ));
        }
    }
}

/// Only a simulation knows the fleet's own step times.
fn check_routing(routing: &Routing, found: &mut Vec<Invalid>) {
    let field = "spec.routing.parameters";
    match routing.kind() {
        Err(problem) => found.push(Invalid::new(
            field,
            format!("do not fit ({problem})"),
            "write only parameters that the policy has, in their ranges",
        )),
        Ok(policy) => {
            let unnamed = policy
                .engine()
                .is_some_and(|engine| engine.model.profile().is_none());
            if policy.simulates() && unnamed {
                found.push(Invalid::new(
                    field,
                    format!("name no model, and {} simulates engines", policy.name()),
                    "write model: qwen2-7b and gpu: H20, or what is nearest to the engines",
                ));
            }
        }
    }
}

fn check_peers(policy: &NetworkPolicySpec, found: &mut Vec<Invalid>) {
    let NetworkPolicySpec {
        enabled: _,
        gateway_from,
        monitoring_from,
    } = policy;
    for (list, peers) in [("gatewayFrom", gateway_from), ("monitoringFrom", monitoring_from)] {
        for (at, peer) in peers.iter().enumerate() {
            let NetworkPolicyPeer {
                ip_block,
                namespace_selector,
                pod_selector,
            } = peer;
            let selects = namespace_selector.is_some() || pod_selector.is_some();
            if ip_block.is_some() == selects {
                found.push(Invalid::new(
                    format!("spec.networkPolicy.{list}[{at}]"),
                    "has to hold either ipBlock, or namespaceSelector and podSelector",
                    "write one of the two; namespaceSelector: {} stands for all namespaces",
                ));
            }
        }
    }
}

fn check_readable<T: DeserializeOwned + Serialize>(field: &str, part: &Loose<T>, found: &mut Vec<Invalid>) {
    if let Err(problem) = part.read() {
        found.push(unreadable(field, &problem));
    }
}

fn unreadable(field: &str, problem: &super::Unreadable) -> Invalid {
    Invalid::new(field, problem.to_string(), "correct it, or remove it")
}
