//! One kind's watch: events into the store, and the pools they are about into the wakes.

use std::fmt::Debug;

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Client, Resource,
    core::{DeserializeGuard, NamespaceResourceScope},
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use lmetric_api::pool::names::label;
use lmetric_telemetry::Tasks;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Apis, Guarded, PoolRef, Reach, Wakes, retry::Retry};
use crate::{args::Scope, metrics::Metrics, words::Words};

/// Length of one watch request, seconds: a connection that died silently is noticed after as long.
const TIMEOUT: u32 = 60;

/// What every watch needs.
pub(super) struct Watch {
    pub(super) client: Client,
    pub(super) scope: Scope,
    pub(super) wakes: Wakes,
    pub(super) metrics: Metrics,
    pub(super) tasks: Tasks,
}

/// Kinds that a pool owns or is told by.
pub(super) trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// Those of namespaces.
pub(super) trait Namespaced: Kind + Resource<Scope = NamespaceResourceScope> {}

impl<K> Namespaced for K where K: Kind + Resource<Scope = NamespaceResourceScope> {}

impl Watch {
    /// Pools themselves.
    pub(super) fn pools(&self) -> Store<Guarded> {
        let (store, mut writer) = reflector::store::<Guarded>();
        let mut events = watched(
            self.scope.api::<Guarded>(&self.client),
            watcher::Config::default(),
        );
        let (wakes, metrics, known) = (self.wakes.clone(), self.metrics.clone(), store.clone());
        self.tasks.spawn("watch pools", |token| async move {
            while let Some(event) = next(&mut events, "pools", &metrics, &token).await {
                writer.apply_watcher_event(&event);
                wake_for(&event, &wakes, &known, |pool| Some(PoolRef::from_obj(pool)));
            }
        });
        store
    }

    /// A kind that every cluster has.
    pub(super) fn always<K: Namespaced>(&self, name: &'static str, labels: &str) -> Store<K> {
        let (store, mut writer) = reflector::store::<K>();
        let config = watcher::Config::default().labels(labels);
        let events = watched(self.scope.api::<DeserializeGuard<K>>(&self.client), config);
        let (wakes, metrics, known) = (self.wakes.clone(), self.metrics.clone(), store.clone());
        self.tasks.spawn(name, move |token| async move {
            let following = Following {
                name,
                wakes: &wakes,
                metrics: &metrics,
                pools: &pool_of,
            };
            following.follow(events, &mut writer, &known, &token).await;
        });
        store
    }

    /// A kind that a cluster may lack; watched while `installed`.
    pub(super) fn optional<K: Namespaced>(
        &self,
        name: &'static str,
        labels: &str,
        apis: watch::Receiver<Apis>,
        installed: fn(&Apis) -> bool,
    ) -> Store<K> {
        let (client, scope) = (self.client.clone(), self.scope.clone());
        let api = move |apis: &Apis| installed(apis).then(|| scope.api::<DeserializeGuard<K>>(&client));
        let config = watcher::Config::default().labels(labels);
        self.while_there(
            name,
            config,
            apis,
            api,
            move |a, b| installed(a) == installed(b),
            pool_of,
        )
    }

    /// Somebody else's objects, watched as far as they may be read; `pools` are those that one is about.
    pub(super) fn theirs<K: Kind>(
        &self,
        name: &'static str,
        apis: watch::Receiver<Apis>,
        reach: fn(&Apis) -> Reach,
        api: impl Fn(Reach) -> Option<Api<DeserializeGuard<K>>> + Send + Sync + 'static,
        pools: impl Fn(&K) -> Vec<PoolRef> + Send + Sync + 'static,
    ) -> Store<K> {
        let config = watcher::Config::default();
        let api = move |apis: &Apis| api(reach(apis));
        self.while_there(name, config, apis, api, move |a, b| reach(a) == reach(b), pools)
    }

    /// Watches where `api` says, for as long as the APIs are the `same` as they were when it said so.
    fn while_there<K: Kind, P: IntoIterator<Item = PoolRef>>(
        &self,
        name: &'static str,
        config: watcher::Config,
        mut apis: watch::Receiver<Apis>,
        api: impl Fn(&Apis) -> Option<Api<DeserializeGuard<K>>> + Send + Sync + 'static,
        same: impl Fn(&Apis, &Apis) -> bool + Send + Sync + 'static,
        pools: impl Fn(&K) -> P + Send + Sync + 'static,
    ) -> Store<K> {
        let (store, mut writer) = reflector::store::<K>();
        let (wakes, metrics, known) = (self.wakes.clone(), self.metrics.clone(), store.clone());
        self.tasks.spawn(name, move |token| async move {
            while !token.is_cancelled() {
                let began = *apis.borrow_and_update();
                let Some(there) = api(&began) else {
                    tokio::select! {
                        () = token.cancelled() => return,
                        () = until(&mut apis, |now| !same(&began, now)) => continue,
                    }
                };
                let following = Following {
                    name,
                    wakes: &wakes,
                    metrics: &metrics,
                    pools: &pools,
                };
                let events = watched(there, config.clone());
                tokio::select! {
                    () = following.follow(events, &mut writer, &known, &token) => {}
                    () = until(&mut apis, |now| !same(&began, now)) => {}
                }
                writer.apply_watcher_event(&Event::Init);
                writer.apply_watcher_event(&Event::InitDone);
            }
        });
        store
    }
}

/// Waits until the installed APIs are so; forever when the prober has ended, which it does in a shutdown only.
async fn until(apis: &mut watch::Receiver<Apis>, so: impl FnMut(&Apis) -> bool) {
    if apis.wait_for(so).await.is_err() {
        std::future::pending::<()>().await;
    }
}

type Events<K> = futures::stream::BoxStream<'static, watcher::Result<Event<K>>>;

fn watched<K: Kind>(api: Api<K>, config: watcher::Config) -> Events<K> {
    watcher(api, config.timeout(TIMEOUT))
        .backoff(Retry::default())
        .modify(|object| object.meta_mut().managed_fields = None)
        .boxed()
}

/// How the events of one kind are followed.
struct Following<'a, F> {
    name: &'static str,
    wakes: &'a Wakes,
    metrics: &'a Metrics,
    /// The pools that an object is about.
    pools: &'a F,
}

impl<F> Following<'_, F> {
    /// Follows the events until shutdown.
    async fn follow<K: Kind, P: IntoIterator<Item = PoolRef>>(
        &self,
        mut events: Events<DeserializeGuard<K>>,
        writer: &mut Writer<K>,
        known: &Store<K>,
        token: &CancellationToken,
    ) where
        F: Fn(&K) -> P,
    {
        let Self {
            name,
            wakes,
            metrics,
            pools,
        } = self;
        while let Some(event) = next(&mut events, name, metrics, token).await {
            let Some(event) = readable(event, name) else {
                continue;
            };
            // what a restarted watch no longer shows was deleted meanwhile
            let before = matches!(event, Event::InitDone).then(|| known.state());
            writer.apply_watcher_event(&event);
            wake_for(&event, wakes, known, pools);
            for object in before.into_iter().flatten() {
                wakes.wake_all(pools(&*object));
            }
        }
    }
}

/// The next event; `None` at shutdown. Errors are waited for by the stream's own backoff.
async fn next<K>(
    events: &mut (impl Stream<Item = watcher::Result<Event<K>>> + Unpin),
    name: &'static str,
    metrics: &Metrics,
    token: &CancellationToken,
) -> Option<Event<K>> {
    loop {
        let event = tokio::select! {
            () = token.cancelled() => return None,
            event = events.next() => event?,
        };
        match event {
            Ok(event) => return Some(event),
            Err(error) => {
                metrics.watch_failed(name);
                tracing::warn!(kind = name, error = %Words(&error), "a watch broke; it is started again");
            }
        }
    }
}

/// The event without its guard; `None` for an object that cannot be read.
fn readable<K: Kind>(event: Event<DeserializeGuard<K>>, name: &str) -> Option<Event<K>> {
    let open = |guarded: DeserializeGuard<K>| match guarded.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let meta = &invalid.metadata;
            tracing::warn!(
                kind = name,
                namespace = meta.namespace,
                name = meta.name,
                error = invalid.error,
                "skips an object that cannot be read"
            );
            None
        }
    };
    match event {
        Event::Apply(object) => open(object).map(Event::Apply),
        Event::Delete(object) => open(object).map(Event::Delete),
        Event::InitApply(object) => open(object).map(Event::InitApply),
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
    }
}

fn wake_for<K: Kind, P: IntoIterator<Item = PoolRef>>(
    event: &Event<K>,
    wakes: &Wakes,
    known: &Store<K>,
    pools: impl Fn(&K) -> P,
) {
    match event {
        Event::Apply(object) | Event::Delete(object) => {
            wakes.wake_all(pools(object));
        }
        Event::InitDone => {
            for object in known.state() {
                wakes.wake_all(pools(&object));
            }
        }
        Event::Init | Event::InitApply(_) => {}
    }
}

/// The pool that an object is about, by its label.
fn pool_of<K: Kind>(object: &K) -> Option<PoolRef> {
    let meta = object.meta();
    let pool = meta.labels.as_ref()?.get(label::POOL)?;
    Some(PoolRef::new(pool).within(meta.namespace.as_deref()?))
}
