//! What a pool's status says. Pure: equal facts give an equal status, which is then not written.
//!
//! A pool that cannot be built keeps what serves; its status goes on telling the truth about the running pods and
//! says what is wrong with the new specification.

mod components;
mod conditions;
mod endings;
mod engines;
pub mod fields;
pub mod pod;
mod rejected;
mod replicas;
mod route;
#[cfg(test)]
mod tests;
mod troubles;
mod waiting;
mod write;

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt as _;
use lmetric_api::pool::{Component, InferencePoolStatus, ServiceType, names::label};

pub use conditions::Draft;
pub use endings::Endings;
pub use write::{StatusError, Written, tell_unreadable, write};

use crate::{
    apply::{Outcome, Trouble},
    dereference::Facts,
    versions::{TOOL_IMAGE, note},
};
use engines::Engines;
use lmetric_api::pool::names::annotation;

/// What became of the specification.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<'a> {
    /// It cannot be built: fields and remedies, for a person.
    Unbuildable(&'a str),
    /// It was applied; what came of it.
    Applied(&'a Outcome),
}

impl Verdict<'_> {
    fn troubles(&self) -> &[Trouble] {
        match self {
            Self::Unbuildable(_) => &[],
            Self::Applied(outcome) => &outcome.troubles,
        }
    }
}

/// A status, and after how long it has to be looked at again although nothing tells of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The status.
    pub status: InferencePoolStatus,
    /// Elapsed times in it grow.
    pub again: Option<Duration>,
}

/// What hinders a pod from being placed may be told by an Event alone, and no watch shows Events.
const SOON: Duration = Duration::from_secs(5);
/// Messages tell whole minutes.
const MINUTE: Duration = Duration::from_mins(1);

/// The status of the pool. `previous` is the one before: what did not change keeps its time.
pub fn compute(facts: &Facts, previous: &InferencePoolStatus, verdict: Verdict<'_>) -> Report {
    let pool = &facts.pool;
    let spec = &pool.spec;
    let name = pool.name_any();
    let engine_name = Component::Engine.object_name(&name);
    let running: Option<&Deployment> = match verdict {
        Verdict::Unbuildable(_) => facts.engines.as_deref(),
        Verdict::Applied(outcome) => outcome.deployment(&engine_name).or(facts.engines.as_deref()),
    };
    let engines = Engines::count(facts, running);
    let draft = Draft {
        facts,
        verdict,
        engines: &engines,
        running,
    };
    let soonest = components::until_picker_is_known(facts);
    let mut conditions = draft.conditions();
    for condition in &mut conditions {
        let before = previous.condition(&condition.type_);
        if let Some(before) = before.filter(|before| before.status == condition.status) {
            condition.last_transition_time = before.last_transition_time.clone();
        }
    }
    let made = |key: &str| running.and_then(|running| note(running, key));
    let status = InferencePoolStatus {
        observed_generation: pool.metadata.generation,
        replicas: engines.existing,
        ready_replicas: engines.ready,
        updated_replicas: engines.updated,
        available_replicas: engines.available,
        draining_replicas: engines.draining,
        selector: format!(
            "{}={},{}={name}",
            label::COMPONENT,
            Component::Engine.as_str(),
            label::POOL
        ),
        gpus: engines.holding * spec.parallelism.accelerators(),
        url: url(facts, verdict, &draft),
        template_revision: made(annotation::TEMPLATE_REVISION)
            .and_then(|revision| revision.parse().ok())
            .or(previous.template_revision),
        tool_image: made(TOOL_IMAGE)
            .map(str::to_owned)
            .or_else(|| previous.tool_image.clone()),
        conditions,
    };
    let moving = engines.draining > 0 || engines.ready < engines.existing || !engines.findings.is_empty();
    let pace = moving.then_some(if engines.placing { SOON } else { MINUTE });
    Report {
        status,
        again: [pace, soonest, engines.again].into_iter().flatten().min(),
    }
}

/// Where requests go: the standalone Envoy's Service (by its load balancer's address where it has one), else what
/// accepts the route.
fn url(facts: &Facts, verdict: Verdict<'_>, draft: &Draft<'_>) -> Option<String> {
    let spec = &facts.pool.spec;
    if let Some(standalone) = &spec.gateway.standalone {
        let name = Component::Envoy.object_name(&facts.pool.name_any());
        let Verdict::Applied(outcome) = verdict else {
            return facts.pool.status.as_ref().and_then(|status| status.url.clone());
        };
        let service = outcome.service(&name)?;
        let outside = match standalone.service.kind {
            ServiceType::LoadBalancer => address_of(service),
            ServiceType::ClusterIp | ServiceType::NodePort => None,
        };
        let host =
            outside.unwrap_or_else(|| format!("{name}.{}.svc", facts.pool.namespace().unwrap_or_default()));
        return Some(address("http", &host, standalone.service.port));
    }
    draft.route_url()
}

fn address_of(service: &Service) -> Option<String> {
    let ingress = service
        .status
        .as_ref()?
        .load_balancer
        .as_ref()?
        .ingress
        .as_ref()?
        .first()?;
    ingress.hostname.clone().or_else(|| ingress.ip.clone())
}

/// A URL without the port that its scheme implies.
fn address(scheme: &str, host: &str, port: i32) -> String {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    match (scheme, port) {
        ("http", 80) | ("https", 443) => format!("{scheme}://{host}"),
        _ => format!("{scheme}://{host}:{port}"),
    }
}
