//! The six conditions, each with a message that says what a person must do.

use k8s_openapi::{
    api::apps::v1::Deployment,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::ResourceExt as _;
use lmetric_api::pool::{Component, IntOrString, RolloutStrategy, condition::condition, reason};

use super::{
    Verdict,
    engines::{Engines, is_stuck},
    pod::{Limits, examine, is_ready},
};
use crate::{
    apply::{Trouble, What},
    dereference::Facts,
    rollout,
};

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
            let (reason, message) = told(trouble);
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
        let message = format!("{} of {} engines serve", self.engines.ready, spec.replicas);
        (TRUE, reason::SERVING, message)
    }

    fn envoy_down(&self) -> String {
        let words = worst(self.facts, Component::Envoy);
        words.unwrap_or_else(|| "no Envoy is ready yet".to_owned())
    }

    fn available(&self) -> Said {
        let spec = &self.facts.pool.spec;
        if spec.replicas == 0 {
            return (
                FALSE,
                reason::SCALED_TO_ZERO,
                "spec.replicas is 0; raise it to serve".to_owned(),
            );
        }
        let may_lack = match spec.rollout.strategy {
            RolloutStrategy::Auto => 1,
            RolloutStrategy::RollingUpdate => amount(&spec.rollout.unavailable(), spec.replicas),
            RolloutStrategy::Recreate => 0,
        };
        let needed = (spec.replicas - may_lack).max(1);
        let message = format!(
            "{} engines are available, {needed} are needed",
            self.engines.available
        );
        if self.engines.available >= needed {
            return (TRUE, reason::AS_EXPECTED, message);
        }
        match self.engines.findings.first() {
            Some(finding) => (FALSE, finding.reason, format!("{message}; {}", finding.message)),
            None => (FALSE, reason::STARTING, message),
        }
    }

    fn progressing(&self) -> Said {
        let spec = &self.facts.pool.spec;
        let Some(running) = self.running else {
            return match self.verdict {
                Verdict::Unbuildable(words) => (FALSE, reason::INVALID_SPEC, words.to_owned()),
                Verdict::Applied(_) => (TRUE, reason::ROLLING_OUT, "engines are being made".to_owned()),
            };
        };
        if rollout::is_complete(running) && self.engines.existing == spec.replicas {
            let message = if self.engines.draining > 0 {
                format!(
                    "every engine is current; {} finish their requests",
                    self.engines.draining
                )
            } else {
                "every engine is current".to_owned()
            };
            return (FALSE, reason::COMPLETE, message);
        }
        if spec.rollout.paused {
            let message =
                "changes wait because spec.rollout.paused is true; set it to false to go on".to_owned();
            return (FALSE, reason::PAUSED, message);
        }
        if is_stuck(running) {
            let finding = self.engines.findings.first();
            let reason = finding.map_or(reason::START_TIMEOUT, |finding| finding.reason);
            let words = finding.map_or("no engine became ready in time", |finding| {
                finding.message.as_str()
            });
            return (FALSE, reason, format!("the rollout does not move: {words}"));
        }
        let count = format!(
            "{} of {} engines are of the current template, {} available",
            self.engines.updated, spec.replicas, self.engines.available
        );
        match self
            .engines
            .findings
            .first()
            .filter(|finding| finding.reason == reason::STARTING)
        {
            Some(starting) => (TRUE, reason::STARTING, format!("{count}; {}", starting.message)),
            None => (TRUE, reason::ROLLING_OUT, count),
        }
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
            let (reason, message) = told(trouble);
            return (TRUE, reason, message);
        }
        if let Some(finding) = self.engines.trouble() {
            return (TRUE, finding.reason, finding.message.clone());
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

    fn picker_ready(&self) -> Said {
        let ready = self.facts.picker_pods.iter().filter(|pod| is_ready(pod)).count();
        let wanted = self.facts.pool.spec.picker.replicas;
        if ready > 0 {
            return (
                TRUE,
                reason::AS_EXPECTED,
                format!("{ready} of {wanted} pickers are ready"),
            );
        }
        let words =
            worst(self.facts, Component::Picker).unwrap_or_else(|| "no picker is ready yet".to_owned());
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

/// Without these requests are not served, or go to somebody else's pods.
fn is_essential(trouble: &Trouble) -> bool {
    let kind = matches!(
        trouble.kind.as_str(),
        "Deployment" | "Service" | "ConfigMap" | "ServiceAccount" | "RoleBinding"
    );
    kind && trouble.what == What::Conflict
}

fn told(trouble: &Trouble) -> (&'static str, String) {
    let Trouble { kind, name, what } = trouble;
    match what {
        What::Conflict => (
            reason::NAME_CONFLICT,
            format!(
                "{kind} {name} exists and is not this pool's; it stays as it is. Delete or rename it, or give the pool another name"
            ),
        ),
        What::Invalid(words) => (
            reason::INVALID_SPEC,
            format!(
                "{kind} {name} as this pool asks for it is invalid: {words}. What ran before goes on; correct the field of spec that this is about"
            ),
        ),
        What::Refused(words) => (
            reason::APPLY_REFUSED,
            format!(
                "the API server refuses {kind} {name}: {words}. What ran before goes on; raise the quota or grant the right that this is about"
            ),
        ),
    }
}

/// What is the matter with the pods of a component, if something is.
fn worst(facts: &Facts, component: Component) -> Option<String> {
    let pods = match component {
        Component::Engine => &facts.engine_pods,
        Component::Picker => &facts.picker_pods,
        Component::Envoy => &facts.envoy_pods,
    };
    let limits = Limits {
        now: facts.now,
        container: component.as_str(),
        resource: &facts.pool.spec.accelerator.resource_name,
        startup: std::time::Duration::from_mins(5),
        volumes: None,
    };
    let mut findings: Vec<_> = pods.iter().filter_map(|pod| examine(pod, &limits)).collect();
    findings.sort_by_key(|finding| finding.reason == reason::STARTING);
    findings.into_iter().next().map(|finding| match finding.reason {
        reason::STARTING => format!("no {} is ready yet", component.as_str()),
        _ => finding.message,
    })
}

/// A count, or a percentage of `whole` rounded down, as Deployments do for unavailable pods.
fn amount(value: &IntOrString, whole: i32) -> i32 {
    match value {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            whole * percent / 100
        }
    }
}

/// Times of conditions have whole seconds, so that what is read back is equal to what was written.
fn whole_second(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time)
}
