//! The driver: dereference → validate → build → apply → status, for one pool at a time.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kube::{Client, ResourceExt as _, runtime::controller::Action};
use lmetric_api::pool::{Component, InferencePool, InferencePoolStatus, RolloutStrategy};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tracing::Instrument as _;

use crate::{
    apply::{Applier, ApplyError, Memory, Outcome},
    backoff::Backoff,
    dereference::{Facts, dereference},
    events::{self, Teller},
    metrics::{Metrics, Verb},
    rollout::{self, Step},
    status::{self, Endings, Report, StatusError, Verdict, Written},
    validate::validate,
    validated::{Cluster, Images},
    versions::{self, Built},
    watch::{Apis, Guarded, Stores},
};

/// Every pool is looked at again after so long, whatever the watches told.
const RESYNC: Duration = Duration::from_mins(10);
/// What a person has to mend beside the pool (a name that is taken, a quota) shows in no watch.
const MENDED: Duration = Duration::from_secs(30);
/// One pool may take so long; a graceful shutdown waits for those that are being worked on.
const LIMIT: Duration = Duration::from_mins(1);

/// What reconciling needs. Shared by all pools.
pub struct Context {
    /// Requests go here.
    pub client: Client,
    /// What is watched.
    pub stores: Stores,
    /// Installed optional APIs.
    pub apis: watch::Receiver<Apis>,
    /// Images that the operator was told.
    pub images: Images,
    /// Image of the drain tool for new templates.
    pub tool_image: String,
    /// The operator's place in the cluster.
    pub cluster: Cluster,
    /// What was applied.
    pub memory: Memory,
    /// Statuses that were written.
    pub written: Written,
    /// When engines ended.
    pub endings: Endings,
    /// Failures in a row.
    pub backoff: Backoff,
    /// Tells Events.
    pub teller: Teller,
    /// Counts.
    pub metrics: Metrics,
}

/// Why a pool could not be worked on; it is tried again after its backoff.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// An object could not be applied or deleted.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The status could not be written.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// It took too long.
    #[error("the pool could not be worked on within {LIMIT:?}")]
    Slow,
}

impl ReconcileError {
    /// For metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::Status(_) => "status",
            Self::Slow => "slow",
        }
    }
}

/// Works on one pool.
pub async fn reconcile(pool: Arc<Guarded>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let began = Instant::now();
    let work = one(&pool, &context).instrument(span(&pool));
    let done = timeout(LIMIT, Box::pin(work))
        .await
        .unwrap_or(Err(ReconcileError::Slow));
    context.metrics.reconciled(began.elapsed());
    if done.is_ok() {
        context.backoff.succeeded(&uid(&pool));
    }
    done
}

/// After a failure.
#[expect(clippy::needless_pass_by_value, reason = "the runtime calls it so")]
pub fn on_error(pool: Arc<Guarded>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let wait = context.backoff.failed(&uid(&pool), &mut rand::rng());
    context.metrics.failed(error.kind());
    span(&pool).in_scope(|| tracing::warn!(%error, again = ?wait, "cannot finish a pool"));
    Action::requeue(wait)
}

/// Forgets what was known of a pool that is gone. Without a finalizer it goes in one step, so that no pass sees it going.
pub fn forget(context: &Context, namespace: &str, name: &str) {
    context.memory.forget_pool(namespace, name);
    let pools = context.stores.pools.state();
    let alive: HashSet<_> = pools.iter().filter_map(|pool| pool.uid()).collect();
    context.written.keep(&alive);
    context.backoff.keep(&alive);
}

/// What every log line about a pool tells of it. The runtime's own span would add why it woke the pool, which it does not
/// know of pools that [`crate::watch::Wakes`] names.
fn span(pool: &Guarded) -> tracing::Span {
    let (namespace, name) = (pool.namespace(), pool.name_any());
    tracing::info_span!(parent: None, "pool", namespace, pool = name)
}

fn uid(pool: &Guarded) -> String {
    pool.uid().unwrap_or_default()
}

async fn one(pool: &Guarded, context: &Context) -> Result<Action, ReconcileError> {
    let pool = match &pool.0 {
        Ok(pool) => Arc::new(pool.clone()),
        Err(invalid) => {
            if status::tell_unreadable(&context.client, invalid, &context.written).await? {
                context.metrics.wrote("InferencePool", Verb::Status);
            }
            return Ok(Action::await_change());
        }
    };
    if pool.metadata.deletion_timestamp.is_some() {
        // everything is owned by it: garbage collection takes it all away
        context
            .memory
            .forget_pool(&pool.namespace().unwrap_or_default(), &pool.name_any());
        context.written.forget(&pool.uid().unwrap_or_default());
        return Ok(Action::await_change());
    }
    let apis = *context.apis.borrow();
    let mut facts = dereference(&pool, &context.stores, apis, &context.client).await;
    context.endings.note(&mut facts);
    let before = context.written.newest(&pool);
    let (report, soon) = match make(&facts, context) {
        Err(words) => (
            status::compute(&facts, &before, Verdict::Unbuildable(&words)),
            None,
        ),
        Ok(built) => {
            let (outcome, soon) = Box::pin(apply(&facts, built, context)).await?;
            if outcome
                .troubles
                .iter()
                .any(|trouble| trouble.what == crate::apply::What::Conflict)
            {
                context.metrics.failed("conflict");
            }
            // Events of the kubelet and pods may have come meanwhile; times count from here
            facts.now = jiff::Timestamp::now();
            (status::compute(&facts, &before, Verdict::Applied(&outcome)), soon)
        }
    };
    tell(&pool, &before, &report, context).await?;
    let again = [report.again, soon].into_iter().flatten().min().unwrap_or(RESYNC);
    Ok(Action::requeue(again))
}

/// Validate and build; in words for a person when that cannot be done.
fn make(facts: &Facts, context: &Context) -> Result<Built, String> {
    let validated = validate(facts, &context.cluster).map_err(|wrong| {
        context.metrics.failed("invalid");
        let lines: Vec<_> = wrong.iter().map(ToString::to_string).collect();
        lines.join("; ")
    })?;
    versions::build(
        &validated,
        &context.images,
        &context.tool_image,
        facts.engines.as_deref(),
    )
    .map_err(|error| {
        context.metrics.failed("build");
        error.to_string()
    })
}

/// Applies what was built, with the strategy of this step of the rollout. The duration is when an `Auto` rollout has to be
/// looked at again.
async fn apply(
    facts: &Facts,
    built: Built,
    context: &Context,
) -> Result<(Outcome, Option<Duration>), ReconcileError> {
    let pool = &facts.pool;
    let (namespace, name) = (pool.namespace().unwrap_or_default(), pool.name_any());
    let Built {
        mut resources,
        versions: _,
        template,
    } = built;
    let mut soon = None;
    let mut news = false;
    if pool.spec.rollout.strategy == RolloutStrategy::Auto {
        let seen = rollout::Seen {
            running: facts.engines.as_deref(),
            replica_sets: &facts.replica_sets,
            pods: &facts.engine_pods,
            resource: &pool.spec.accelerator.resource_name,
            now: facts.now,
        };
        let step = rollout::decide(&seen, &template);
        match &step {
            Step::NewFirst { again } => soon = *again,
            Step::OldFirst { news: decided } => news = *decided,
        }
        let engines = Component::Engine.object_name(&name);
        for deployment in &mut resources.deployments {
            if deployment.metadata.name.as_ref() == Some(&engines) {
                deployment.spec.strategy = Some(rollout::strategy(&step));
            }
        }
    }
    let applier = Applier {
        client: &context.client,
        memory: &context.memory,
        metrics: &context.metrics,
        namespace: &namespace,
        pool: &name,
        uid: pool.metadata.uid.as_deref().unwrap_or_default(),
    };
    let outcome = Box::pin(applier.apply(resources, &context.stores)).await?;
    if !outcome.troubles.is_empty() {
        soon = Some(soon.map_or(MENDED, |soon| soon.min(MENDED)));
    }
    if news {
        context.teller.tell(pool, &[events::old_first()]).await;
    }
    Ok((outcome, soon))
}

async fn tell(
    pool: &InferencePool,
    before: &InferencePoolStatus,
    report: &Report,
    context: &Context,
) -> Result<(), ReconcileError> {
    let wrote = status::write(&context.client, pool, before, &report.status, &context.written).await?;
    if wrote {
        context.metrics.wrote("InferencePool", Verb::Status);
        context
            .teller
            .tell(pool, &events::of_change(before, &report.status))
            .await;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
