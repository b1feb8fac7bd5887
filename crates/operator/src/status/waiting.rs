//! An engine without a node: a short wait passes by itself, and so does one for the accelerators of an engine that ends.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use lmetric_api::pool::{RolloutStrategy, reason};

use super::pod::{Finding, Unscheduled, is_going, template_of, unschedulable};
use crate::{dereference::Facts, rollout};

/// A pod may wait so long for a node before a person hears of it: the scheduler tries again after a second or two, and a
/// volume takes as long to be made.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of a finding about a pod.
pub(super) struct Judged {
    /// As it is told.
    pub(super) finding: Finding,
    /// After how long it has to be judged again, where time alone changes it.
    pub(super) again: Option<Duration>,
}

/// A pod without a node is no trouble as long as its wait may end by itself.
pub(super) fn judge(pod: &Pod, finding: Finding, facts: &Facts, draining: i32) -> Judged {
    let Some(waits) = unschedulable(pod, &facts.pool.spec.accelerator.resource_name) else {
        return Judged { finding, again: None };
    };
    let name = pod.name_any();
    if waits.accelerator && draining > 0 {
        let message =
            format!("pod {name} waits for the accelerators of an engine that finishes its requests");
        return starting(message, None);
    }
    let old_may_go = waits.accelerator && old_may_go(facts, &waits);
    let patience = if old_may_go {
        rollout::PATIENCE + PATIENCE
    } else {
        PATIENCE
    };
    // what an engine held is the scheduler's to give only when the engine is gone
    let since = facts
        .last_ending
        .filter(|_| waits.accelerator)
        .unwrap_or(waits.since);
    let waited = elapsed(since.max(waits.since), facts.now);
    match patience.checked_sub(waited).filter(|rest| !rest.is_zero()) {
        Some(rest) if old_may_go => starting(
            format!(
                "pod {name} waits for an accelerator; if none gets free within {} s, an old engine goes first",
                rollout::PATIENCE.as_secs()
            ),
            Some(rest),
        ),
        Some(rest) => starting(format!("pod {name} waits for a node"), Some(rest)),
        None => Judged {
            finding: with_rollout(finding, facts, &waits),
            again: None,
        },
    }
}

fn starting(message: String, again: Option<Duration>) -> Judged {
    let finding = Finding {
        reason: reason::STARTING,
        message,
    };
    Judged { finding, again }
}

fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// Whether an `Auto` rollout would end an engine of another template for this one.
fn old_may_go(facts: &Facts, waits: &Unscheduled) -> bool {
    facts.pool.spec.rollout.strategy == RolloutStrategy::Auto && has_other(facts, waits)
}

fn has_other(facts: &Facts, waits: &Unscheduled) -> bool {
    let mut alive = facts.engine_pods.iter().filter(|pod| !is_going(pod));
    alive.any(|pod| template_of(pod) != waits.template.as_deref())
}

/// A rollout that may only surge never ends on full nodes.
fn with_rollout(finding: Finding, facts: &Facts, waits: &Unscheduled) -> Finding {
    let by_surge = facts.pool.spec.rollout.strategy == RolloutStrategy::RollingUpdate;
    if !(by_surge && waits.accelerator && has_other(facts, waits)) {
        return finding;
    }
    Finding {
        message: format!(
            "{}, or let an old engine go first: spec.rollout.strategy Auto, or maxSurge 0 with maxUnavailable 1",
            finding.message
        ),
        ..finding
    }
}
