//! From the moment when Kubernetes shows a fact to the moment when the pool's conditions say it.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use serde_json::Value;

use crate::support::{Stage, condition, selector};

/// A pool has so long to say what Kubernetes shows.
const LIMIT: Duration = Duration::from_secs(10);
/// Kubernetes has so long to show it.
const SHOWING: Duration = Duration::from_mins(2);
const EVERY: Duration = Duration::from_millis(100);

/// Something that an object of Kubernetes' own shows.
pub(super) struct Fact {
    path: String,
    selector: String,
    shows: Box<dyn Fn(&Value) -> bool + Send + Sync>,
}

impl Fact {
    /// One of the objects of a list shows it.
    pub(super) fn of(path: String, shows: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        Self {
            path,
            selector: String::new(),
            shows: Box::new(shows),
        }
    }

    /// A pod of pool `p` shows it.
    pub(super) fn of_pods(
        stage: &Stage,
        component: &str,
        shows: impl Fn(&Value) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            selector: selector("p", component),
            ..Self::of(stage.path("v1", "pods", ""), shows)
        }
    }

    /// A container of a component's pod waits for one of these reasons.
    pub(super) fn waiting(stage: &Stage, component: &str, reasons: &'static [&'static str]) -> Self {
        Self::of_pods(stage, component, move |pod| {
            containers(pod).any(|container| {
                let reason = container["state"]["waiting"]["reason"].as_str();
                reason.is_some_and(|reason| reasons.contains(&reason))
            })
        })
    }

    /// The engine's own container has ended so.
    pub(super) fn ended(stage: &Stage, shows: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        Self::of_pods(stage, "engine", move |pod| {
            let engine = &pod["status"]["containerStatuses"][0];
            ["state", "lastState"].iter().any(|state| {
                let ended = &engine[*state]["terminated"];
                ended.is_object() && shows(ended)
            })
        })
    }

    /// The scheduler finds no node for an engine, in these words.
    pub(super) fn unscheduled(stage: &Stage, words: &'static str) -> Self {
        Self::of_pods(stage, "engine", move |pod| {
            let (status, _, message) = condition(pod, "PodScheduled");
            status == "False" && message.contains(words)
        })
    }

    /// The Deployment of the engines says that no pod can be made, in these words.
    pub(super) fn refused(stage: &Stage, words: &'static str) -> Self {
        Self::of(stage.path("apps/v1", "deployments", ""), move |deployment| {
            let (status, _, message) = condition(deployment, "ReplicaFailure");
            status == "True" && message.contains(words)
        })
    }

    async fn holds(&self, stage: &Stage) -> anyhow::Result<bool> {
        let items = stage.cluster.list(&self.path, &self.selector).await?;
        Ok(items.iter().any(|item| (self.shows)(item)))
    }
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .filter_map(|field| pod["status"][field].as_array())
        .flatten()
}

/// What pool `p` has to say.
pub(super) struct Words<'a> {
    /// Type, status and reason of conditions.
    pub(super) conditions: &'a [(&'a str, &'a str, &'a str)],
    /// What the message of the first has to hold: the thing and the remedy.
    pub(super) message: &'a [&'a str],
}

impl Words<'_> {
    fn are_in(&self, pool: &Value) -> bool {
        let said = self.conditions.iter().all(|(kind, status, reason)| {
            let (is, why, _) = condition(pool, kind);
            is == *status && why == *reason
        });
        let message = self.message_in(pool);
        said && self.message.iter().all(|word| message.contains(word))
    }

    fn message_in(&self, pool: &Value) -> String {
        self.conditions
            .first()
            .map(|(kind, ..)| condition(pool, kind).2)
            .unwrap_or_default()
    }
}

/// Waits for the fact, then for the pool's words, and prints one line about both. Fails when the words come too late. Returns the pool as
/// it said them.
pub(super) async fn told(stage: &Stage, fact: &Fact, words: &Words<'_>) -> anyhow::Result<Value> {
    let began = Instant::now();
    let mut shown = None;
    loop {
        if shown.is_none() && fact.holds(stage).await? {
            shown = Some(Instant::now());
        }
        let pool = stage.cluster.get(&stage.pool_path("p")).await?;
        match shown {
            Some(at) if words.are_in(&pool) => {
                line(words, &pool, at - began, at.elapsed())?;
                return Ok(pool);
            }
            Some(at) => ensure!(
                at.elapsed() <= LIMIT,
                "{:?} after Kubernetes showed it, the pool does not say {:?} {:?} but {:#}",
                at.elapsed(),
                words.conditions,
                words.message,
                pool["status"]["conditions"]
            ),
            None if began.elapsed() > SHOWING => {
                bail!("Kubernetes does not show what was brought about, within {SHOWING:?}")
            }
            None => {}
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// A row of the table. Past the test runner's capture, which shows what a test prints only when it fails.
fn line(words: &Words<'_>, pool: &Value, shown: Duration, later: Duration) -> anyhow::Result<()> {
    let said: Vec<_> = words
        .conditions
        .iter()
        .map(|(kind, status, reason)| format!("{kind}={status}/{reason}"))
        .collect();
    writeln!(
        std::io::stderr(),
        "failure: {:<62} shown after {:5.1} s, said {:4.1} s later: {}",
        said.join(" "),
        shown.as_secs_f64(),
        later.as_secs_f64(),
        words.message_in(pool)
    )?;
    Ok(())
}
