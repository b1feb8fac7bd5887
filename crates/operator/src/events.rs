//! What is told as an Event: changes of the conditions that a person should hear of, and steps of the rollout.

use kube::{
    Client, Resource as _,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use lmetric_api::pool::{
    InferencePool, InferencePoolStatus, condition::condition, names::FIELD_MANAGER, reason,
};
use tokio::time::timeout;

use crate::{
    metrics::{Metrics, Verb},
    words::{Words, is_about_a_namespace_that_ends},
};

/// A note of an Event may be so long, in bytes.
const MAX_NOTE: usize = 1_024;
/// Longest wait for one Event; they are a courtesy.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// Tells Events.
#[derive(Clone)]
pub struct Teller {
    recorder: Recorder,
    metrics: Metrics,
}

impl std::fmt::Debug for Teller {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Teller").finish_non_exhaustive()
    }
}

impl Teller {
    /// Tells as the operator whose pod is called `instance`.
    pub fn new(client: Client, instance: &str, metrics: Metrics) -> Self {
        let reporter = Reporter {
            controller: FIELD_MANAGER.to_owned(),
            instance: Some(instance.to_owned()),
        };
        Self {
            recorder: Recorder::new(client, reporter),
            metrics,
        }
    }

    /// Tells them about the pool. One that cannot be told is logged.
    pub async fn tell(&self, pool: &InferencePool, events: &[Event]) {
        let about = pool.object_ref(&());
        for event in events {
            self.metrics.wrote("Event", Verb::Event);
            match timeout(PATIENCE, self.recorder.publish(event, &about)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) if is_about_a_namespace_that_ends(&error) => {
                    tracing::debug!(error = %Words(&error), reason = event.reason, "nobody is left to be told");
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = %Words(&error), reason = event.reason, "cannot tell an event");
                }
                Err(_) => tracing::warn!(reason = event.reason, "cannot tell an event in time"),
            }
        }
    }
}

/// Events of a change of status: a new reason for being degraded, and a pool that begins or ceases to serve.
pub fn of_change(before: &InferencePoolStatus, after: &InferencePoolStatus) -> Vec<Event> {
    let mut events = Vec::new();
    let news = |kind: &str| {
        let now = after.condition(kind)?;
        let was = before.condition(kind);
        let same = was.is_some_and(|was| was.status == now.status && was.reason == now.reason);
        (!same).then_some((was, now))
    };
    if let Some((was, now)) = news(condition::DEGRADED) {
        if now.status == "True" {
            events.push(event(EventType::Warning, &now.reason, "Reconcile", &now.message));
        } else if was.is_some_and(|was| was.status == "True") {
            events.push(event(EventType::Normal, "Recovered", "Reconcile", &now.message));
        }
    }
    if let Some((was, now)) = news(condition::READY) {
        let served = was.is_some_and(|was| was.status == "True");
        if now.status == "True" && !served {
            events.push(event(EventType::Normal, "Ready", "Serve", &now.message));
        } else if now.status != "True" && served {
            events.push(event(EventType::Warning, "NotServing", "Serve", &now.message));
        }
    }
    events
}

/// The rollout goes on by ending an old engine first.
pub fn old_first() -> Event {
    event(
        EventType::Warning,
        reason::INSUFFICIENT_GPU,
        "Rollout",
        "no accelerator is free for a new engine; in this rollout an old engine goes before each new one",
    )
}

fn event(kind: EventType, reason: &str, action: &str, note: &str) -> Event {
    let end = (0..=MAX_NOTE.min(note.len()))
        .rev()
        .find(|at| note.is_char_boundary(*at))
        .unwrap_or(0);
    Event {
        type_: kind,
        reason: reason.to_owned(),
        note: Some(note[..end].to_owned()),
        action: action.to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(degraded: (&str, &str), ready: &str) -> InferencePoolStatus {
        let condition = |kind: &str, status: &str, reason: &str| -> Value {
            json!({"type": kind, "status": status, "reason": reason, "message": "ä".repeat(2_000),
                   "lastTransitionTime": "2026-11-30T12:00:00Z"})
        };
        serde_json::from_value(json!({"conditions": [
            condition("Degraded", degraded.0, degraded.1), condition("Ready", ready, "x"),
        ]}))
        .expect("a status")
    }

    fn reasons(before: &InferencePoolStatus, after: &InferencePoolStatus) -> Vec<String> {
        of_change(before, after)
            .into_iter()
            .map(|event| event.reason)
            .collect()
    }

    #[test]
    fn a_reason_is_told_once() {
        let well = status(("False", "AsExpected"), "True");
        let ill = status(("True", "OOMKilled"), "False");
        assert_eq!(reasons(&well, &ill), ["OOMKilled", "NotServing"]);
        assert_eq!(reasons(&ill, &ill), Vec::<String>::new());
        assert_eq!(
            reasons(&ill, &status(("True", "ImagePull"), "False")),
            ["ImagePull"]
        );
        assert_eq!(reasons(&ill, &well), ["Recovered", "Ready"]);
        assert_eq!(
            reasons(
                &InferencePoolStatus::default(),
                &status(("False", "AsExpected"), "False")
            ),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_note_is_cut_between_letters() {
        let event = &of_change(
            &InferencePoolStatus::default(),
            &status(("True", "OOMKilled"), "False"),
        )[0];
        assert_eq!(event.note.as_ref().map(String::len), Some(1_024));
    }
}
