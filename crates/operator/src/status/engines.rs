//! The engines counted, and the worst that is the matter with one of them.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::ResourceExt as _;
use lmetric_api::pool::{Component, names::ENGINE_CONTAINER, reason};

use super::{
    fields::Fields,
    pod::{Finding, Limits, Startup, claim_remedy, examine, is_going, is_ready, template_of},
    rejected::rejected,
    waiting::{Judged, judge},
};
use crate::{dereference::Facts, rollout};

/// Reasons from the worst to the one that passes by itself.
const WORST_FIRST: [&str; 13] = [
    reason::PODS_REJECTED,
    reason::IMAGE_PULL,
    reason::SECRET_MISSING,
    reason::OOM_KILLED,
    reason::CRASH_LOOP,
    reason::START_TIMEOUT,
    // what follows may be for want of the node
    reason::NODE_LOST,
    reason::VOLUME_PENDING,
    reason::VOLUME_ATTACH,
    reason::INSUFFICIENT_GPU,
    reason::UNSCHEDULABLE,
    reason::NOT_READY,
    reason::STARTING,
];

/// The engines of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Engines {
    /// Exist and are not being drained.
    pub(super) existing: i32,
    /// Serve.
    pub(super) ready: i32,
    /// Of the current template.
    pub(super) updated: i32,
    /// Of the current template, and serve.
    pub(super) updated_ready: i32,
    /// Ready long enough.
    pub(super) available: i32,
    /// Being drained.
    pub(super) draining: i32,
    /// Hold accelerators: have a node and have not ended.
    pub(super) holding: i32,
    /// Whether one has no running container yet: it waits for a node, an image or volumes.
    pub(super) placing: bool,
    /// What is the matter, the worst first. What may pass by itself within seconds is only [`reason::STARTING`].
    pub(super) findings: Vec<Finding>,
    /// After how long a finding changes although nothing else does.
    pub(super) again: Option<Duration>,
}

impl Engines {
    pub(super) fn count(facts: &Facts, running: Option<&Deployment>) -> Self {
        let spec = &facts.pool.spec;
        let claim = claim_remedy(
            &spec.cache,
            &facts.pool.name_any(),
            facts.claim.as_deref(),
            facts.claim_trouble.as_deref(),
        );
        let limits = Limits {
            now: facts.now,
            container: ENGINE_CONTAINER,
            fields: Fields::of(Component::Engine),
            resource: &spec.accelerator.resource_name,
            startup: Startup::of(spec),
            volumes: facts.volume_trouble.as_deref(),
            claim: &claim,
        };
        let pods = || facts.engine_pods.iter().map(|pod| &**pod);
        let many = |is: &dyn Fn(&Pod) -> bool| {
            i32::try_from(pods().filter(|pod| is(pod)).count()).unwrap_or(i32::MAX)
        };
        let draining = many(&|pod| pod.metadata.deletion_timestamp.is_some() && !has_ended(pod));
        let status = running.and_then(|running| running.status.as_ref());
        let count = |field: Option<i32>| field.unwrap_or(0);
        let ready = many(&is_ready);
        let current = running.and_then(|running| rollout::newest(running, &facts.replica_sets));
        let judged: Vec<_> = pods()
            .filter_map(|pod| Some(judge(pod, examine(pod, &limits)?, facts, draining)))
            .collect();
        let again = judged.iter().filter_map(|judged| judged.again).min();
        let mut findings: Vec<_> = judged
            .into_iter()
            .map(|Judged { finding, again: _ }| finding)
            .chain(running.and_then(|running| rejected(running, Component::Engine, spec)))
            .collect();
        findings.sort_by_key(|finding| WORST_FIRST.iter().position(|known| *known == finding.reason));
        Self {
            existing: many(&|pod| !is_going(pod)),
            ready,
            updated: count(status.and_then(|status| status.updated_replicas)),
            updated_ready: many(&|pod| is_ready(pod) && current.is_some() && template_of(pod) == current),
            // the Deployment's own count may lag behind a pod that has just gone
            available: count(status.and_then(|status| status.available_replicas)).min(ready),
            draining,
            holding: many(&|pod| {
                let placed = pod
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.node_name.as_ref())
                    .is_some();
                placed && !has_ended(pod)
            }),
            placing: pods().any(|pod| !is_going(pod) && !has_begun(pod)),
            findings,
            again,
        }
    }

    /// The worst that waiting alone does not mend.
    pub(super) fn trouble(&self) -> Option<&Finding> {
        self.findings
            .first()
            .filter(|finding| finding.reason != reason::STARTING)
    }
}

/// Whether a container of it has run.
fn has_begun(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    containers.unwrap_or_default().iter().any(|container| {
        let state = container.state.as_ref();
        container.restart_count > 0 || state.is_some_and(|state| state.running.is_some())
    })
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the rollout has not moved for its deadline.
pub(super) fn is_stuck(running: &Deployment) -> bool {
    let conditions = running
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|condition| {
        is(condition.type_.as_deref(), "Progressing")
            && is(condition.reason.as_deref(), "ProgressDeadlineExceeded")
    })
}

fn is(value: Option<&str>, wanted: &str) -> bool {
    value == Some(wanted)
}
