//! The `Auto` rollout: a new engine first; when no accelerator is free for it, an old one goes first.
//!
//! Stateless: what was decided is read back from the Deployment's own strategy, so a restarted operator goes on.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentStrategy, ReplicaSet, RollingUpdateDeployment},
        core::v1::Pod,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{
    status::pod::{is_going, template_of, unschedulable},
    versions::{TEMPLATE, note},
};

/// How long a new engine may wait for an accelerator before an old one goes first.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Annotation by which the Deployment's controller counts templates.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// What to do in this step of an `Auto` rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Surge 1, unavailable 0.
    NewFirst {
        /// Look again after so long: an engine waits for an accelerator.
        again: Option<Duration>,
    },
    /// Surge 0, unavailable 1.
    OldFirst {
        /// Whether this was decided just now.
        news: bool,
    },
}

/// What a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The engines' Deployment as it runs.
    pub running: Option<&'a Deployment>,
    /// Its ReplicaSets.
    pub replica_sets: &'a [Arc<ReplicaSet>],
    /// Its pods.
    pub pods: &'a [Arc<Pod>],
    /// Extended resource of accelerators.
    pub resource: &'a str,
    /// Now.
    pub now: Timestamp,
}

/// Decides whether the template of that hash goes on with a new engine or with an old one.
pub fn decide(seen: &Seen<'_>, template: &str) -> Step {
    let Seen {
        running,
        replica_sets,
        pods,
        resource,
        now,
    } = *seen;
    let calm = Step::NewFirst { again: None };
    let Some(running) = running else {
        return calm;
    };
    if note(running, TEMPLATE) != Some(template) || is_complete(running) {
        return calm;
    }
    if is_old_first(running) {
        return Step::OldFirst { news: false };
    }
    let alive = || pods.iter().filter(|pod| !is_going(pod));
    let current = newest(running, replica_sets);
    let waiting = alive()
        .filter_map(|pod| unschedulable(pod, resource))
        .filter(|why| {
            why.accelerator && current.is_none_or(|current| why.template.as_deref() == Some(current))
        })
        .map(|why| (why.since, why.template));
    let Some((since, new)) = waiting.min() else {
        return calm;
    };
    // without an engine of another template there is nothing that could go first
    if !alive().any(|pod| template_of(pod) != new.as_deref()) {
        return calm;
    }
    let waited = now.duration_since(since).unsigned_abs();
    match PATIENCE.checked_sub(waited) {
        Some(rest) if !rest.is_zero() => Step::NewFirst { again: Some(rest) },
        _ => Step::OldFirst { news: true },
    }
}

/// The template hash of the Deployment's newest ReplicaSet, as pods are labelled with it.
pub(crate) fn newest<'a>(running: &Deployment, replica_sets: &'a [Arc<ReplicaSet>]) -> Option<&'a str> {
    let revision = note(running, REVISION)?;
    let set = replica_sets.iter().find(|set| {
        let notes = set.metadata.annotations.as_ref();
        notes
            .and_then(|notes| notes.get(REVISION))
            .is_some_and(|of| of == revision)
    })?;
    set.metadata
        .labels
        .as_ref()?
        .get("pod-template-hash")
        .map(String::as_str)
}

/// The strategy of that step.
pub fn strategy(step: &Step) -> DeploymentStrategy {
    let (surge, unavailable) = match step {
        Step::NewFirst { .. } => (1, 0),
        Step::OldFirst { .. } => (0, 1),
    };
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment {
            max_surge: Some(IntOrString::Int(surge)),
            max_unavailable: Some(IntOrString::Int(unavailable)),
        }),
    }
}

/// Whether every engine runs the current template and is available, and no other exists.
pub fn is_complete(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let Some(status) = &deployment.status else {
        return false;
    };
    let count = |field: Option<i32>| field.unwrap_or(0);
    status.observed_generation >= deployment.metadata.generation
        && count(status.updated_replicas) == wanted
        && count(status.replicas) == wanted
        && count(status.available_replicas) == wanted
}

fn is_old_first(deployment: &Deployment) -> bool {
    let rolling = deployment
        .spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.rolling_update.as_ref());
    rolling.is_some_and(|rolling| rolling.max_surge == Some(IntOrString::Int(0)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing;

    fn running(template: &str, surge: i32, updated: i32) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "p-engine", "generation": 3, "annotations": {TEMPLATE: template}},
            "spec": {
                "replicas": 4, "selector": {}, "template": {},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 - surge}},
            },
            "status": {"observedGeneration": 3, "replicas": 5, "updatedReplicas": updated, "availableReplicas": 4},
        }))
        .expect("a deployment")
    }

    fn step(deployment: &Deployment, template: &str, waited: i64, old: bool, message: &str) -> Step {
        let waiting = testing::pod(
            "new",
            json!({"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                "lastTransitionTime": testing::ago(waited),
            }]}),
        );
        let ready = testing::pod("old", testing::ready_status());
        let mut pods = vec![Arc::new(waiting)];
        if old {
            pods.push(Arc::new(ready));
        }
        decide(&seen(Some(deployment), &[], &pods), template)
    }

    fn seen<'a>(
        running: Option<&'a Deployment>,
        replica_sets: &'a [Arc<ReplicaSet>],
        pods: &'a [Arc<Pod>],
    ) -> Seen<'a> {
        Seen {
            running,
            replica_sets,
            pods,
            resource: "nvidia.com/gpu",
            now: testing::now(),
        }
    }

    const FULL: &str = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.";

    #[test]
    fn an_old_engine_goes_first_after_thirty_seconds_without_an_accelerator() {
        let deployment = running("t", 1, 1);
        let again = Some(Duration::from_secs(20));
        assert_eq!(step(&deployment, "t", 10, true, FULL), Step::NewFirst { again });
        assert_eq!(
            step(&deployment, "t", 30, true, FULL),
            Step::OldFirst { news: true }
        );
        assert_eq!(
            step(&running("t", 0, 1), "t", 1, true, FULL),
            Step::OldFirst { news: false }
        );
    }

    #[test]
    fn only_a_want_of_accelerators_and_only_an_old_engine_that_could_go_count() {
        let calm = Step::NewFirst { again: None };
        let deployment = running("t", 1, 1);
        assert_eq!(
            step(
                &deployment,
                "t",
                60,
                true,
                "0/2 nodes are available: 2 Insufficient cpu."
            ),
            calm
        );
        assert_eq!(step(&deployment, "t", 60, false, FULL), calm);
        assert_eq!(decide(&seen(None, &[], &[]), "t"), calm);
    }

    #[test]
    fn an_old_engine_that_waits_is_no_reason() {
        let mut deployment = running("t", 1, 1);
        deployment
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(REVISION.to_owned(), "7".to_owned());
        let set = |hash: &str| -> Arc<ReplicaSet> {
            let set = json!({"metadata": {"labels": {"pod-template-hash": hash}, "annotations": {REVISION: "7"}}, "spec": {"selector": {}}});
            Arc::new(serde_json::from_value(set).expect("a replica set"))
        };
        let waiting = testing::pod(
            "old",
            json!({"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL,
                "lastTransitionTime": testing::ago(60),
            }]}),
        );
        let pods = [
            Arc::new(waiting),
            Arc::new(testing::pod("new", testing::ready_status())),
        ];
        let with = |sets: &[Arc<ReplicaSet>]| decide(&seen(Some(&deployment), sets, &pods), "t");
        assert_eq!(with(&[set("new")]), Step::NewFirst { again: None });
        assert_eq!(with(&[set("old")]), Step::OldFirst { news: true });
    }

    #[test]
    fn the_next_rollout_begins_with_a_new_engine_again() {
        let calm = Step::NewFirst { again: None };
        assert_eq!(step(&running("t", 0, 1), "another", 60, true, FULL), calm);
        let mut complete = running("t", 0, 4);
        if let Some(status) = &mut complete.status {
            status.replicas = Some(4);
        }
        assert_eq!(step(&complete, "t", 0, true, FULL), calm);
    }
}
