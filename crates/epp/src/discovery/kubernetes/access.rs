//! Whether the API server still lets the picker see what it follows.
//!
//! A picker whose token or rights are gone goes on with what it knew and never hears of a new engine: after a while it is
//! not ready any more, so that somebody looks. An API server that cannot be reached is another matter: it comes back, the
//! watches with it, and until then nobody knows better.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use lmetric_telemetry::Readiness;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Refused for so long, a watch will not be let in by waiting.
const PATIENCE: Duration = Duration::from_secs(30);
/// A refused watch is tried again within [`super::retry::LONGEST`]: after so long without a refusal it was let in. Nothing
/// else tells, since a watch that is let in says nothing until something changes.
const QUIET: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// What stands in the way of readiness.
const BLOCKER: &str = "api-server";

/// Why a watch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401: the token is not valid any more.
    Token,
    /// 403: the service account may not.
    Rights,
}

impl Refusal {
    /// By the status of an answer.
    pub(super) fn of(code: u16) -> Option<Self> {
        match code {
            401 => Some(Self::Token),
            403 => Some(Self::Rights),
            _ => None,
        }
    }

    /// What a person has to do.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Token => {
                "the picker's token is not valid any more, as when its service account was deleted: restart the picker's pod"
            }
            Self::Rights => {
                "bind a role that lets the picker's service account get, list and watch it: the RoleBinding is missing"
            }
        }
    }
}

/// Refusals of all watches. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Access(Arc<Mutex<BTreeMap<String, Run>>>);

/// Refusals of one watch without a pause.
#[derive(Clone, Copy, Debug)]
struct Run {
    refusal: Refusal,
    since: Instant,
    last: Instant,
}

impl Access {
    /// The watch of `what` was refused.
    pub(super) fn refused(&self, what: &str, refusal: Refusal) {
        let now = Instant::now();
        let mut runs = self.0.lock();
        let run = runs.entry(what.to_owned()).or_insert(Run {
            refusal,
            since: now,
            last: now,
        });
        if now.duration_since(run.last) > QUIET {
            run.since = now;
        }
        (run.refusal, run.last) = (refusal, now);
    }

    /// The watch of `what` brought something.
    pub(super) fn heard(&self, what: &str) {
        self.0.lock().remove(what);
    }

    /// What has been refused for too long, for a person.
    pub fn trouble(&self) -> Option<String> {
        let now = Instant::now();
        let mut runs = self.0.lock();
        runs.retain(|_, run| now.duration_since(run.last) <= QUIET);
        let mut words = String::new();
        for (what, run) in runs.iter() {
            if now.duration_since(run.since) >= PATIENCE {
                let gap = if words.is_empty() { "" } else { "; " };
                let _ = write!(
                    words,
                    "{gap}the API server refuses to show {what}: {}",
                    run.refusal.remedy()
                );
            }
        }
        (!words.is_empty()).then_some(words)
    }

    /// Lets `readiness` know until `token` is cancelled.
    pub async fn report(self, readiness: Readiness, token: CancellationToken) {
        let mut told = None;
        loop {
            let trouble = self.trouble();
            if told != trouble {
                match &trouble {
                    Some(words) => {
                        tracing::error!(words, "not ready: new engines would not be seen");
                        readiness.block(BLOCKER, words);
                    }
                    None => readiness.clear(BLOCKER),
                }
                told = trouble;
            }
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn seconds(count: u64) {
        tokio::time::sleep(Duration::from_secs(count)).await;
    }

    async fn refused_for(access: &Access, refusal: Refusal, count: u64) {
        for _ in 0..count / 5 {
            access.refused("pods", refusal);
            seconds(5).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_refusals_that_go_on_are_trouble_and_each_kind_has_its_remedy() {
        for (refusal, remedy) in [
            (Refusal::Token, "restart the picker's pod"),
            (Refusal::Rights, "RoleBinding"),
        ] {
            let access = Access::default();
            refused_for(&access, refusal, 25).await;
            assert_eq!(access.trouble(), None);
            refused_for(&access, refusal, 10).await;
            let words = access.trouble().expect("trouble");
            assert!(words.contains("pods") && words.contains(remedy), "{words}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_heard_and_a_pause_in_the_refusals_end_it() {
        let access = Access::default();
        refused_for(&access, Refusal::Rights, 40).await;
        assert!(access.trouble().is_some());
        access.heard("pods");
        assert_eq!(access.trouble(), None);
        refused_for(&access, Refusal::Rights, 40).await;
        assert!(access.trouble().is_some());
        seconds(21).await;
        assert_eq!(access.trouble(), None, "let in, or nobody there to refuse");
        refused_for(&access, Refusal::Rights, 10).await;
        assert_eq!(access.trouble(), None, "it begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_follows() {
        let (access, readiness) = (Access::default(), Readiness::default());
        let token = CancellationToken::new();
        let reporting = tokio::spawn(access.clone().report(readiness.clone(), token.clone()));
        refused_for(&access, Refusal::Token, 35).await;
        assert!(!readiness.is_ready());
        assert!(readiness.reasons().contains("restart"), "{}", readiness.reasons());
        access.heard("pods");
        seconds(2).await;
        assert!(readiness.is_ready());
        token.cancel();
        reporting.await.expect("it ends");
    }
}
