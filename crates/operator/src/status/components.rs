//! Pickers and Envoys: whether they serve, and what is the matter with them.

use std::time::Duration;

use kube::ResourceExt as _;
use lmetric_api::pool::{Component, reason};

use super::{
    Verdict,
    conditions::whole_second,
    fields::Fields,
    pod::{Finding, Limits, Startup, examine, ready_since},
    rejected::rejected,
};
use crate::dereference::Facts;

/// The standalone Envoy has asked a picker for its health so long after the picker became ready.
const HEALTH_CHECK: Duration = Duration::from_secs(2);

/// After how long the standalone Envoy knows a ready picker to be healthy; `None` when it does already, or there is no
/// such Envoy or picker. A picker whose clock is ahead counts at once.
pub(super) fn until_picker_is_known(facts: &Facts) -> Option<Duration> {
    facts.pool.spec.gateway.standalone.as_ref()?;
    let now = whole_second(facts.now);
    let rests = facts
        .picker_pods
        .iter()
        .filter_map(|pod| ready_since(pod))
        .map(|since| {
            let age = u64::try_from(now.as_second() - since.as_second()).ok();
            age.map_or(Duration::ZERO, |age| {
                HEALTH_CHECK.saturating_sub(Duration::from_secs(age))
            })
        });
    rests.min().filter(|rest| !rest.is_zero())
}

/// What is the matter with the pods of a component, if something is: what waiting alone does not mend before what it does.
pub(super) fn finding(facts: &Facts, verdict: Verdict<'_>, component: Component) -> Option<Finding> {
    let pods = match component {
        Component::Engine => &facts.engine_pods,
        Component::Picker => &facts.picker_pods,
        Component::Envoy => &facts.envoy_pods,
    };
    let limits = Limits {
        now: facts.now,
        container: component.as_str(),
        fields: Fields::of(component),
        resource: &facts.pool.spec.accelerator.resource_name,
        // they have no limit to start in
        startup: Startup::unlimited(),
        volumes: None,
        claim: "look at the claims that the pod names (kubectl get pvc)",
    };
    let refused = match verdict {
        Verdict::Applied(outcome) => outcome
            .deployment(&component.object_name(&facts.pool.name_any()))
            .and_then(|running| rejected(running, component, &facts.pool.spec)),
        Verdict::Unbuildable(_) => None,
    };
    let mut findings: Vec<_> = pods.iter().filter_map(|pod| examine(pod, &limits)).collect();
    findings.sort_by_key(|finding| finding.reason == reason::STARTING);
    refused.into_iter().chain(findings).next()
}

/// The same in words, where no pod of it is ready.
pub(super) fn worst(facts: &Facts, verdict: Verdict<'_>, component: Component) -> Option<String> {
    finding(facts, verdict, component).map(|finding| match (finding.reason, component) {
        (reason::STARTING, Component::Envoy) => "no Envoy is ready yet".to_owned(),
        (reason::STARTING, _) => format!("no {} is ready yet", component.as_str()),
        _ => finding.message,
    })
}
