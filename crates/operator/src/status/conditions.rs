//! The six conditions, each with a message that says what a person must do.

use k8s_openapi::{
    api::apps::v1::Deployment,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::ResourceExt as _;
use lmetric_api::pool::{Component, condition::condition, reason};

use super::{
    Verdict,
    components::{finding, until_picker_is_known, worst},
    engines::{Engines, is_stuck},
    pod::{Finding, is_ready},
    troubles::{is_essential, told},
};
use crate::dereference::Facts;

/// Everything that the conditions are made from.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    pub(super) facts: &'a Facts,
    pub(super) verdict: Verdict<'a>,
    pub(super) engines: &'a Engines,
    pub(super) running: Option<&'a Deployment>,
}

/// Status, reason and message of a condition.
pub(super) type Said = (&'static str, &'static str, String);

pub(super) const TRUE: &str = "True";
pub(super) const FALSE: &str = "False";
pub(super) const UNKNOWN: &str = "Unknown";

impl Draft<'_> {
    /// All conditions, in the order of [`condition::ALL`]. Their times are those of now.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        condition::ALL
            .into_iter()
            .map(|kind| {
                let (status, reason, message) = match kind {
                    condition::READY => self.ready(),
                    condition::AVAILABLE => self.available(),
                    condition::PROGRESSING => self.progressing(),
                    condition::DEGRADED => self.degraded(),
                    condition::PICKER_READY => self.picker_ready(),
                    _ => self.route_accepted(),
                };
                Condition {
                    type_: kind.to_owned(),
                    status: status.to_owned(),
                    reason: reason.to_owned(),
                    message,
                    observed_generation: self.facts.pool.metadata.generation,
                    last_transition_time: Time(whole_second(self.facts.now)),
                }
            })
            .collect()
    }

    fn ready(&self) -> Said {
        let spec = &self.facts.pool.spec;
        if spec.replicas == 0 {
            let message = "spec.replicas is 0; raise it to serve".to_owned();
            return (FALSE, reason::SCALED_TO_ZERO, message);
        }
        if let Some(trouble) = self
            .verdict
            .troubles()
            .iter()
            .find(|trouble| is_essential(trouble))
        {
            let (reason, message) = told(trouble, self.verdict.troubles());
            return (FALSE, reason, message);
        }
        if self.engines.ready == 0 {
            return match (self.engines.findings.first(), self.verdict) {
                (Some(finding), _) => (FALSE, finding.reason, finding.message.clone()),
                (None, Verdict::Unbuildable(words)) => (FALSE, reason::INVALID_SPEC, words.to_owned()),
                (None, Verdict::Applied(_)) => (FALSE, reason::STARTING, "engines are being made".to_owned()),
            };
        }
        let picker = self.picker_ready();
        if picker.0 != TRUE {
            return (FALSE, reason::PICKER_DOWN, picker.2);
        }
        let by_envoy = spec.gateway.standalone.is_some();
        let by_gateway = !spec.gateway.parent_refs.is_empty();
        let envoy_serves = by_envoy && self.facts.envoy_pods.iter().any(|pod| is_ready(pod));
        if (by_envoy || by_gateway) && !envoy_serves && !(by_gateway && self.route_is_accepted()) {
            return if by_envoy {
                (FALSE, reason::ENVOY_DOWN, self.envoy_down())
            } else {
                let (_, reason, message) = self.route_accepted();
                (FALSE, reason, message)
            };
        }
        if until_picker_is_known(self.facts).is_some() {
            let message = "the picker has just become ready; the pool's Envoy asks it within 2 s".to_owned();
            return (FALSE, reason::STARTING, message);
        }
        let message = format!("{} of {} engines serve", self.engines.ready, spec.replicas);
        (TRUE, reason::SERVING, message)
    }

    fn envoy_down(&self) -> String {
        let words = worst(self.facts, self.verdict, Component::Envoy);
        words.unwrap_or_else(|| "no Envoy is ready yet".to_owned())
    }

    fn degraded(&self) -> Said {
        if let Verdict::Unbuildable(words) = self.verdict {
            let kept = if self.running.is_some() {
                "; what ran before goes on"
            } else {
                ""
            };
            return (TRUE, reason::INVALID_SPEC, format!("{words}{kept}"));
        }
        if let Some(trouble) = self.verdict.troubles().first() {
            let (reason, message) = told(trouble, self.verdict.troubles());
            return (TRUE, reason, message);
        }
        if let Some(finding) = self.engines.trouble() {
            return (TRUE, finding.reason, finding.message.clone());
        }
        if let Some(finding) = self.surroundings() {
            return (TRUE, finding.reason, finding.message);
        }
        let ((status, reason, message), _) = self.route();
        if status == FALSE {
            return (TRUE, reason, message);
        }
        if let Some(missing) = self.missing_monitoring() {
            return (TRUE, reason::OPTIONAL_API_MISSING, missing);
        }
        if let Some(running) = self.running.filter(|running| is_stuck(running)) {
            let name = running.name_any();
            let message =
                format!("the rollout does not move; look at it (kubectl describe deployment {name})");
            return (TRUE, reason::START_TIMEOUT, message);
        }
        (FALSE, reason::AS_EXPECTED, "nothing is wrong".to_owned())
    }

    /// What is the matter with a picker or an Envoy that waiting alone does not mend.
    fn surroundings(&self) -> Option<Finding> {
        [Component::Picker, Component::Envoy]
            .into_iter()
            .filter_map(|component| finding(self.facts, self.verdict, component))
            .find(|finding| finding.reason != reason::STARTING)
    }

    fn picker_ready(&self) -> Said {
        let ready = self.facts.picker_pods.iter().filter(|pod| is_ready(pod)).count();
        let wanted = self.facts.pool.spec.picker.replicas;
        if ready > 0 {
            return (
                TRUE,
                reason::AS_EXPECTED,
                format!("pickers ready: {ready}, wanted: {wanted}"),
            );
        }
        let words = worst(self.facts, self.verdict, Component::Picker)
            .unwrap_or_else(|| "no picker is ready yet".to_owned());
        (FALSE, reason::PICKER_DOWN, words)
    }

    fn missing_monitoring(&self) -> Option<String> {
        let (asked, apis) = (self.facts.pool.spec.monitoring, self.facts.apis);
        let (kind, field) = if asked.pod_monitor && !apis.pod_monitors {
            ("podmonitors", "podMonitor")
        } else if asked.alerts && !apis.prometheus_rules {
            ("prometheusrules", "alerts")
        } else {
            return None;
        };
        Some(format!(
            "{kind} of monitoring.coreos.com/v1 are not installed; install the Prometheus operator, or set spec.monitoring.{field} to false"
        ))
    }
}

/// Times of conditions have whole seconds, so that what is read back is equal to what was written.
pub(super) fn whole_second(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time)
}
