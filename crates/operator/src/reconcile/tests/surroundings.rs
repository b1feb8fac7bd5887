//! What happens around a pool: APIs that come and go, watches that break, objects that nobody can read, namespaces.

use futures::{FutureExt as _, StreamExt as _};

use super::*;

const MONITORS: &str = "monitoring.coreos.com/v1";
const MONITOR: &str = "/apis/monitoring.coreos.com/v1/namespaces/models/podmonitors/qwen-engine";

impl Bench {
    /// Waits until the prober has seen whether monitors are installed.
    async fn monitors(&self, installed: bool) {
        let mut apis = self.context.apis.clone();
        apis.wait_for(|apis| apis.pod_monitors == installed)
            .await
            .expect("the prober runs");
    }
}

#[tokio::test(start_paused = true)]
async fn an_optional_api_that_comes_and_goes_is_noticed_without_a_restart() {
    let bench = start(&json!({"monitoring": {"podMonitor": true}})).await;
    bench.pass().await.expect("works");
    assert_eq!(
        bench.condition(condition::DEGRADED).1,
        reason::OPTIONAL_API_MISSING
    );
    assert_eq!(bench.api.object(MONITOR), None);
    bench.api.install(MONITORS, &["PodMonitor", "PrometheusRule"]);
    bench.monitors(true).await;
    bench.pass().await.expect("works");
    assert!(bench.api.object(MONITOR).is_some());
    assert_eq!(bench.condition(condition::DEGRADED).0, "False");
    bench.api.install(MONITORS, &[]);
    bench.monitors(false).await;
    bench.pass().await.expect("works");
    assert_eq!(
        bench.condition(condition::DEGRADED).1,
        reason::OPTIONAL_API_MISSING
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_that_its_watch_misses_is_looked_for_at_once() {
    let (client, api) = FakeApi::start();
    api.install(MONITORS, &["PodMonitor", "PrometheusRule"]);
    api.put(POOL, pool(&json!({"monitoring": {"podMonitor": true}})));
    let bench = watching(client, api, "tool:1").await;
    bench.monitors(true).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.api.install(MONITORS, &[]);
    let gone = tokio::time::Instant::now();
    bench.doubts.raise();
    bench.monitors(false).await;
    assert!(gone.elapsed() < Duration::from_secs(2), "{:?}", gone.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_while_a_watch_was_broken_is_made_again() {
    let bench = start(&json!({})).await;
    bench.pass().await.expect("works");
    let mut woken = std::pin::pin!(bench.wakes.stream());
    while woken.next().now_or_never().is_some() {}
    // the watch gets 410 Gone and lists anew
    bench.api.remove_and_expire(ENGINES);
    let pool = woken.next().await.expect("the pool is woken");
    assert_eq!(pool.name, "qwen");
    bench.pass().await.expect("works");
    assert!(bench.api.object(ENGINES).is_some());
}

#[tokio::test]
async fn a_child_that_cannot_be_read_stops_nobody() {
    let (client, api) = FakeApi::start();
    api.put(POOL, pool(&json!({})));
    let labels = json!({"lmetric.io/pool": "other", "app.kubernetes.io/managed-by": "lmetric-operator"});
    let odd = "/apis/apps/v1/namespaces/models/deployments/other-engine";
    api.put(
        odd,
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": labels}, "spec": {"replicas": "many"}}),
    );
    let bench = watching(client, api, "tool:1").await;
    let qwen = ObjectRef::new("qwen").within("models");
    let pool = bench
        .context
        .stores
        .pools
        .get(&qwen)
        .expect("the watch shows the pool");
    reconcile(pool, bench.context.clone()).await.expect("works");
    assert!(bench.api.object(ENGINES).is_some());
}

#[tokio::test]
async fn an_operator_of_one_namespace_asks_for_nothing_outside_of_it() {
    let (client, api) = FakeApi::start();
    api.put(POOL, pool(&json!({"gateway": {"standalone": {}}})));
    let elsewhere = "/apis/lmetric.io/v1alpha1/namespaces/elsewhere/inferencepools/qwen";
    api.put(elsewhere, pool(&json!({})));
    let scope = Scope::Namespace("models".to_owned());
    let bench = within(client, api, "tool:1", &scope).await;
    assert_eq!(bench.context.stores.pools.state().len(), 1);
    bench.pass().await.expect("works");
    let strays: Vec<_> = bench
        .api
        .calls()
        .into_iter()
        .map(|call| call.path)
        // the installed APIs are asked for by /apis/GROUP/VERSION
        .filter(|path| path.matches('/').count() > 3 && !path.contains("/namespaces/models"))
        .collect();
    assert_eq!(strays, Vec::<String>::new());
}

#[tokio::test]
async fn an_event_in_a_namespace_that_ends_hinders_nothing() {
    let bench = start(&json!({"monitoring": {"podMonitor": true}})).await;
    bench.api.refuse(lmetric_testkit::fake_api::Refusal {
        method: http::Method::POST,
        path: "/events".to_owned(),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "unable to create new content in namespace models because it is being terminated".to_owned(),
        times: 9,
    });
    bench.pass().await.expect("works");
    assert_eq!(
        bench.condition(condition::DEGRADED).1,
        reason::OPTIONAL_API_MISSING
    );
}

#[tokio::test]
async fn a_log_line_tells_the_pool_and_no_reason_that_nobody_knows() {
    let bench = start(&json!({})).await;
    let shown = bench
        .context
        .stores
        .pools
        .get(&ObjectRef::new("qwen").within("models"))
        .expect("the watch shows the pool");
    let span = span(&shown);
    let metadata = span.metadata().expect("a span");
    let fields: Vec<_> = metadata.fields().iter().map(|field| field.name()).collect();
    assert_eq!((metadata.name(), fields), ("pool", vec!["namespace", "pool"]));
}

#[tokio::test]
async fn nothing_is_kept_of_a_pool_that_is_gone() {
    let bench = start(&json!({})).await;
    bench.pass().await.expect("works");
    bench.context.backoff.failed("0b5e", &mut rand::rng());
    let known = || {
        let context = &bench.context;
        (context.written.known(), context.backoff.failing())
    };
    forget(&bench.context, "models", "another");
    assert_eq!(known(), (1, 1), "the pool is still there");
    bench.api.remove(POOL);
    while !bench.context.stores.pools.state().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    forget(&bench.context, "models", "qwen");
    assert_eq!(known(), (0, 0));
}
