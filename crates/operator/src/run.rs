//! Wiring: watches, election, controller, admin server, shutdown.

use std::{pin::pin, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use kube::{
    Api, Client,
    runtime::{
        Controller,
        controller::{self, Config},
    },
};
use lmetric_telemetry::{Admin, Ended, Logs, Readiness, Tasks, termination};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    apply::Memory,
    args::RunArgs,
    backoff::Backoff,
    events::Teller,
    lease::{Election, Leadership, NamedLease, Timing},
    metrics::Metrics,
    reconcile::{Context, forget, on_error, reconcile},
    status::{Endings, Written},
    watch::{Apis, Doubts, Guarded, Prober, Stores, Wakes},
};

/// Changes of a pool within so long are worked on together.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// A shutdown waits so long for the pools that are being worked on.
const DRAIN: Duration = Duration::from_secs(15);
/// For tasks to end after that.
const GOODBYE: Duration = Duration::from_secs(3);

/// Runs the operator until the process is told to stop. An error when it could not go on: the Lease was lost, or a watch
/// ended.
pub async fn run(args: RunArgs, logs: Logs) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.admin).await.with_context(|| {
        format!(
            "cannot listen on {} for /metrics and /healthz; write another --admin",
            args.admin
        )
    })?;
    let client = Client::try_default()
        .await
        .context("cannot find the API server; run in a pod with a service account, or set KUBECONFIG")?;
    let told = async {
        let signal = termination().await.context("cannot listen for signals")?;
        tracing::info!(signal, "told to stop");
        Ok(())
    };
    operate(client, args, listener, logs, told).await
}

/// [`run`] against this API server, until `told` resolves.
async fn operate(
    client: Client,
    args: RunArgs,
    listener: TcpListener,
    logs: Logs,
    told: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let scope = args.scope();
    let (tasks, ended) = Tasks::new();
    let mut registry = lmetric_telemetry::registry();
    let metrics = Metrics::new(&mut registry);
    let readiness = Readiness::default();
    readiness.block("watches", "what the API server holds is not known yet");

    let prober = Prober::new(client.clone(), scope.clone());
    let first = prober.look(Apis::default()).await;
    let (apis, installed) = watch::channel(first);
    let (wakes, doubts) = (Wakes::default(), Doubts::default());
    let stores = Stores::start(&client, &scope, &installed, &doubts, &wakes, &metrics, &tasks);
    tasks.spawn("probe optional APIs", |token| prober.run(apis, doubts, token));
    let (again, known, mut changes) = (wakes.clone(), stores.pools.clone(), installed.clone());
    tasks.spawn("new APIs wake pools", |token| async move {
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return token.cancelled().await },
            }
            tracing::info!(apis = %*changes.borrow_and_update(), "optional APIs were installed or removed");
            wake_all(&again, &known);
        }
    });
    let admin = Admin::new(listener, registry, readiness.clone(), logs, axum::Router::new());
    tasks.spawn("admin", |token| async move {
        if let Err(error) = admin.serve(token).await {
            tracing::error!(%error, "the admin server failed");
        }
    });
    tracing::info!(admin = %args.admin, namespaces = %scope, apis = %first, "watches");

    let mut told = pin!(until_told(told, ended));
    tokio::select! {
        synced = stores.synced() => synced.context("a watch ended before it had shown anything")?,
        told = &mut told => return told,
    }
    stores.settled(first).await;
    readiness.clear("watches");
    let (state, mut leadership) = watch::channel(Leadership::Waiting);
    let identity = format!("{}_{:08x}", args.pod_name, rand::random::<u32>());
    let leases = NamedLease {
        api: Api::namespaced(client.clone(), &args.operator_namespace),
        name: args.lease.clone(),
    };
    let resign = CancellationToken::new();
    let mut election =
        tokio::spawn(Election::new(leases, identity, Timing::default()).run(resign.clone(), state));
    let context = Arc::new(context(client, &args, stores.clone(), installed, metrics.clone()));

    let stop = CancellationToken::new();
    let mut controller: Option<JoinHandle<()>> = None;
    let outcome = tokio::select! {
        told = &mut told => told,
        lost = lead(&mut leadership, &mut election, || {
            metrics.set_leading(true);
            wake_all(&wakes, &stores.pools);
            controller = Some(tokio::spawn(control(context.clone(), wakes.clone(), args.concurrency.get(), stop.clone())));
        }) => lost,
    };
    if outcome.is_err() {
        // no more writes: somebody else may lead already
        if let Some(controller) = controller {
            controller.abort();
        }
        metrics.set_leading(false);
        return outcome;
    }
    readiness.block("stopping", "the operator was told to stop");
    stop.cancel();
    if let Some(controller) = controller
        && timeout(DRAIN, controller).await.is_err()
    {
        tracing::warn!("some pools are still being worked on after {DRAIN:?}; they are left as they are");
        // without resigning: what is still in flight may write until this process ends
        return Ok(());
    }
    resign.cancel();
    if timeout(GOODBYE, election).await.is_err() {
        tracing::warn!("the lease could not be left in time");
    }
    if !tasks.shut_down(GOODBYE).await {
        tracing::warn!("some tasks did not end within {GOODBYE:?} and are left behind");
    }
    tracing::info!("stopped");
    Ok(())
}

fn context(
    client: Client,
    args: &RunArgs,
    stores: Stores,
    apis: watch::Receiver<Apis>,
    metrics: Metrics,
) -> Context {
    Context {
        teller: Teller::new(client.clone(), &args.pod_name, metrics.clone()),
        client,
        stores,
        apis,
        images: args.images(),
        tool_image: args.tool_image(),
        cluster: args.cluster(),
        memory: Memory::default(),
        written: Written::default(),
        endings: Endings::default(),
        backoff: Backoff::default(),
        metrics,
    }
}

/// Starts `begin` when this process leads; ends, with an error, when it does not any more.
async fn lead(
    leadership: &mut watch::Receiver<Leadership>,
    election: &mut JoinHandle<()>,
    begin: impl FnOnce(),
) -> anyhow::Result<()> {
    let won = leadership
        .wait_for(|state| *state != Leadership::Waiting)
        .await
        .is_ok();
    if won && *leadership.borrow() == Leadership::Leading {
        begin();
    }
    let ended = election.await;
    ended.context("the election panicked")?;
    bail!("this operator does not lead any more; it stops, so that it cannot write beside the next one")
}

/// Works on pools as they are woken, until `stop`; then ends those that have begun.
async fn control(context: Arc<Context>, wakes: Wakes, concurrency: u16, stop: CancellationToken) {
    let pools = context.stores.pools.clone();
    let config = Config::default().concurrency(concurrency).debounce(DEBOUNCE);
    Controller::<Guarded>::for_stream(futures::stream::pending(), pools)
        .with_config(config)
        .reconcile_on(wakes.stream())
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, on_error, context.clone())
        .for_each(|done| {
            match done {
                Ok(_) => {}
                Err(controller::Error::ObjectNotFound(gone)) => {
                    forget(
                        &context,
                        gone.namespace.as_deref().unwrap_or_default(),
                        &gone.name,
                    );
                }
                // failures of pools were told by `on_error`
                Err(error) => tracing::debug!(%error, "a pool was not worked on"),
            }
            std::future::ready(())
        })
        .await;
}

fn wake_all(wakes: &Wakes, pools: &kube::runtime::reflector::Store<Guarded>) {
    for pool in pools.state() {
        wakes.wake(kube::runtime::reflector::ObjectRef::from_obj(&*pool));
    }
}

/// Resolves when the operator is told to stop; an error when a task ended that should not have.
async fn until_told(told: impl Future<Output = anyhow::Result<()>>, mut ended: Ended) -> anyhow::Result<()> {
    tokio::select! {
        told = told => told,
        name = ended.first() => bail!("the {name} task ended although it should run as long as the operator"),
    }
}

#[cfg(test)]
mod tests;
