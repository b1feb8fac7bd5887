//! A pool's Ready agrees with one request a second.
//!
//! Compared only while API server and operator run. No verdict until 15 s after Kubernetes itself shows a fault or its end: after the last
//! change of which of the pool's pods and which nodes are ready.

use std::net::SocketAddr;
use std::time::Duration;

use lmetric_testkit::cluster::{SYSTEM, is_true};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use super::{Rule, Violation};
use crate::clock::{At, Clock};
use crate::fault::{Component, Pool};
use crate::fleet::{Fleet, NODE};
use crate::load::Book;

const EVERY: Duration = Duration::from_secs(1);
/// After Kubernetes shows something.
const GRACE: Duration = Duration::from_secs(15);
/// A request that takes longer is neither served nor failed for the comparison: an engine that hangs holds what it has.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests that have to agree with each other before Ready is compared with them.
const AGREE: usize = 5;
const LOOK: Duration = Duration::from_secs(3);

/// What Kubernetes shows of a pool: ready pods by kind, ready nodes, generation, whether an operator leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    pods: Vec<String>,
    node: String,
    generation: Value,
    operators: usize,
}

/// The last answers and since when Kubernetes shows what it shows.
#[derive(Debug, Default)]
struct State {
    answers: Vec<bool>,
    shown: Shown,
    since: At,
    /// A disagreement is told once.
    told: bool,
}

impl State {
    fn answer(&mut self, served: bool) {
        self.answers.push(served);
        if self.answers.len() > AGREE {
            self.answers.remove(0);
        }
    }

    /// What all of the last answers say, if they agree.
    fn verdict(&self) -> Option<bool> {
        let first = *self.answers.first()?;
        (self.answers.len() == AGREE && self.answers.iter().all(|answer| *answer == first)).then_some(first)
    }

    /// A disagreement, if there is one to be told now.
    fn compare(&mut self, ready: bool, shown: Shown, now: At) -> Option<bool> {
        if shown != self.shown {
            self.shown = shown;
            self.since = now;
        }
        let verdict = self.verdict()?;
        if verdict == ready {
            self.told = false;
            return None;
        }
        if self.told || now.since(self.since) < GRACE {
            return None;
        }
        self.told = true;
        Some(verdict)
    }

    /// Nothing can be seen: start anew.
    fn blind(&mut self, now: At) {
        self.shown = Shown::default();
        self.since = now;
    }
}

/// Sends one request a second to a pool and compares, for ever. Pauses while `running` says so.
pub(crate) async fn watch(
    fleet: Fleet,
    pool: Pool,
    to: SocketAddr,
    book: Book,
    clock: Clock,
    running: tokio::sync::watch::Receiver<bool>,
    tell: impl Fn(Violation),
) {
    let state = std::sync::Arc::new(Mutex::new(State::default()));
    let mut beat = tokio::time::interval(EVERY);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        beat.tick().await;
        if *running.borrow() {
            let (book, state) = (book.clone(), std::sync::Arc::clone(&state));
            tokio::spawn(async move {
                let began = clock.now();
                let id = format!("{}-check-{number}", pool.name());
                let served = book.send(clock, pool, to, id, "are you there?", 1).await;
                if clock.now().since(began) < PATIENCE {
                    state.lock().answer(served);
                }
            });
        }
        let seen = tokio::time::timeout(LOOK, look(&fleet, pool)).await;
        let now = clock.now();
        let mut state = state.lock();
        match seen {
            Ok(Ok((ready, shown))) if shown.operators > 0 => {
                if let Some(served) = state.compare(ready, shown, now) {
                    let text = format!(
                        "pool {}: Ready is {ready} and the last {AGREE} requests were {}; Kubernetes shows since {}: {:?}",
                        pool.name(),
                        if served { "served" } else { "not served" },
                        state.since,
                        state.shown,
                    );
                    tell(Violation {
                        at: now,
                        rule: Rule::Readiness,
                        text,
                    });
                }
            }
            _ => state.blind(now),
        }
    }
}

async fn look(fleet: &Fleet, pool: Pool) -> anyhow::Result<(bool, Shown)> {
    let object = fleet.pool(pool).await?;
    let mut shown = Shown {
        node: fleet.cluster.node_ready(NODE).await?,
        generation: object["metadata"]["generation"].clone(),
        ..Shown::default()
    };
    for component in Component::ALL {
        let pods = fleet.pods(pool, component).await?;
        let ready = pods.into_iter().filter(|pod| pod.ready && !pod.terminating);
        shown.pods.extend(ready.map(|pod| pod.name));
    }
    let operators = fleet
        .cluster
        .pods(SYSTEM, "app.kubernetes.io/name=lmetric")
        .await?;
    shown.operators = operators.iter().filter(|pod| pod.ready).count();
    Ok((is_true(&object, "Ready"), shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pods: usize) -> Shown {
        Shown {
            pods: vec!["engine".to_owned(); pods],
            operators: 2,
            ..Shown::default()
        }
    }

    fn answered(served: bool) -> State {
        let mut state = State::default();
        for _ in 0..AGREE {
            state.answer(served);
        }
        state
    }

    #[test]
    fn a_disagreement_is_told_once_and_not_before_15_s_after_kubernetes_shows_the_fault() {
        let mut state = answered(false);
        assert_eq!(state.compare(true, shown(1), At::second(100)), None);
        assert_eq!(state.compare(true, shown(0), At::second(114)), None);
        // the change of what is shown began the time anew
        assert_eq!(state.compare(true, shown(0), At::second(128)), None);
        assert_eq!(state.compare(true, shown(0), At::second(129)), Some(false));
        assert_eq!(state.compare(true, shown(0), At::second(140)), None);
    }

    #[test]
    fn answers_that_differ_and_time_without_sight_say_nothing() {
        let mut state = answered(true);
        state.answer(false);
        state.shown = shown(1);
        assert_eq!(state.compare(false, shown(1), At::second(100)), None);
        let mut state = answered(true);
        state.shown = shown(1);
        state.blind(At::second(99));
        assert_eq!(state.compare(false, shown(1), At::second(101)), None);
        assert_eq!(state.compare(false, shown(1), At::second(116)), Some(true));
    }
}
