//! The whole way of a pool, against an API server in memory that the real watches watch.

mod left;
mod surroundings;

use kube::runtime::reflector::ObjectRef;
use lmetric_api::pool::{condition::condition, reason};
use lmetric_telemetry::Tasks;
use lmetric_testkit::fake_api::FakeApi;
use serde_json::{Value, json};

use super::*;
use crate::{
    args::Scope,
    testing,
    watch::{Doubts, Prober, Wakes},
};

const POOL: &str = "/apis/lmetric.io/v1alpha1/namespaces/models/inferencepools/qwen";
const ENGINES: &str = "/apis/apps/v1/namespaces/models/deployments/qwen-engine";
const ENVOY_SERVICE: &str = "/api/v1/namespaces/models/services/qwen-envoy";

struct Bench {
    api: FakeApi,
    context: Arc<Context>,
    wakes: Wakes,
    doubts: Doubts,
    // ends the watches
    _tasks: Tasks,
}

/// The pool `qwen` with its own Envoy.
fn pool(change: &Value) -> Value {
    let pool = testing::pool(change);
    json!({"apiVersion": "lmetric.io/v1alpha1", "kind": "InferencePool", "metadata": {"uid": "0b5e"}, "spec": pool.spec})
}

async fn start(spec: &Value) -> Bench {
    let (client, api) = FakeApi::start();
    api.put(POOL, pool(spec));
    watching(client, api, "tool:1").await
}

async fn watching(client: Client, api: FakeApi, tool: &str) -> Bench {
    within(client, api, tool, &Scope::Cluster).await
}

async fn within(client: Client, api: FakeApi, tool: &str, scope: &Scope) -> Bench {
    let (tasks, _ended) = Tasks::new();
    let metrics = Metrics::new(&mut lmetric_telemetry::registry());
    let prober = Prober::new(client.clone(), scope.clone());
    let (tell, apis) = watch::channel(prober.look(Apis::default()).await);
    let (wakes, doubts) = (Wakes::default(), Doubts::default());
    let stores = Stores::start(&client, scope, &apis, &doubts, &wakes, &metrics, &tasks);
    let again = doubts.clone();
    tasks.spawn("probe", |token| prober.run(tell, again, token));
    stores.synced().await.expect("the watches run");
    let context = Context {
        teller: Teller::new(client.clone(), "test", metrics.clone()),
        client,
        stores,
        apis,
        images: testing::images(),
        tool_image: tool.to_owned(),
        cluster: Cluster::default(),
        memory: Memory::default(),
        written: Written::default(),
        endings: Endings::default(),
        backoff: Backoff::default(),
        metrics,
    };
    Bench {
        api,
        context: Arc::new(context),
        wakes,
        doubts,
        _tasks: tasks,
    }
}

impl Bench {
    /// One pass, once the watches show what the API server holds.
    async fn pass(&self) -> Result<Action, ReconcileError> {
        for _ in 0..500 {
            if self.is_shown() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let pool = self
            .context
            .stores
            .pools
            .get(&ObjectRef::new("qwen").within("models"))
            .expect("the watch shows the pool");
        reconcile(pool, self.context.clone()).await
    }

    fn is_shown(&self) -> bool {
        let version = |path: &str| {
            let version = self.api.object(path)?["metadata"]["resourceVersion"]
                .as_str()?
                .to_owned();
            Some(version)
        };
        let stores = &self.context.stores;
        let shown = stores.pools.get(&ObjectRef::new("qwen").within("models"));
        let pool = shown.and_then(|pool| pool.resource_version()) == version(POOL);
        let deployments = stores.deployments.state().iter().all(|deployment| {
            let path = format!(
                "/apis/apps/v1/namespaces/models/deployments/{}",
                deployment.name_any()
            );
            deployment.resource_version() == version(&path)
        });
        let ours = |kind: &str| self.api.paths().iter().filter(|path| path.contains(kind)).count();
        pool && deployments
            && stores.deployments.state().len() == ours("/deployments/")
            && stores.network_policies.state().len() == ours("/networkpolicies/")
            && stores.disruption_budgets.state().len() == ours("/poddisruptionbudgets/")
            && stores.config_maps.state().len() == ours("/configmaps/")
            && stores.role_bindings.state().len() == ours("/rolebindings/")
            && stores.service_accounts.state().len() == ours("/serviceaccounts/")
    }

    fn condition(&self, kind: &str) -> (String, String, String) {
        let pool = self.api.object(POOL).expect("the pool is there");
        let conditions = pool["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = conditions
            .into_iter()
            .find(|condition| condition["type"] == kind)
            .expect("has the condition");
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    fn writes(&self) -> Vec<String> {
        let writes = self.api.take_writes();
        writes
            .into_iter()
            .map(|call| format!("{} {}", call.method, call.path))
            .collect()
    }
}

#[tokio::test]
async fn a_pool_is_made_once_and_then_nothing_is_written() {
    let bench = start(&json!({"gateway": {"standalone": {}}})).await;
    bench.pass().await.expect("works");
    let made = bench.writes();
    for path in [ENGINES, ENVOY_SERVICE, POOL] {
        assert!(
            made.iter().any(|write| write.contains(path)),
            "{path} is not in {made:#?}"
        );
    }
    let engines = bench.api.object(ENGINES).expect("is made");
    assert_eq!(engines["spec"]["replicas"], 4);
    assert_eq!(
        engines["spec"]["strategy"]["rollingUpdate"],
        json!({"maxSurge": 1, "maxUnavailable": 0})
    );
    for _ in 0..3 {
        bench.pass().await.expect("works");
        assert_eq!(bench.writes(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_strangers_service_is_a_conflict_and_stays_as_it_was() {
    let (client, api) = FakeApi::start();
    api.put(POOL, pool(&json!({"gateway": {"standalone": {}}})));
    let theirs = api.put(
        ENVOY_SERVICE,
        json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 1}]}}),
    );
    let bench = watching(client, api, "tool:1").await;
    bench.pass().await.expect("works");
    bench.pass().await.expect("works");
    assert_eq!(bench.api.object(ENVOY_SERVICE), Some(theirs));
    let (state, why, message) = bench.condition(condition::DEGRADED);
    assert_eq!((state.as_str(), why.as_str()), ("True", reason::NAME_CONFLICT));
    assert!(message.contains("Service qwen-envoy"), "{message}");
    assert!(bench.api.object(ENGINES).is_some(), "the others go on");
}

#[tokio::test]
async fn a_slip_in_the_specification_is_told_and_the_last_good_state_stays() {
    let bench = start(&json!({})).await;
    bench.pass().await.expect("works");
    let good = bench.api.object(ENGINES);
    bench.api.edit(POOL, |pool| {
        pool["spec"]["placement"]["affinity"] = json!({"nodeAfinity": {}, "podAffinity": 3});
        pool["spec"]["replicas"] = json!(9);
    });
    bench.pass().await.expect("works");
    let (state, why, message) = bench.condition(condition::DEGRADED);
    assert_eq!((state.as_str(), why.as_str()), ("True", reason::INVALID_SPEC));
    assert!(message.contains("spec.placement.affinity"), "{message}");
    assert_eq!(bench.api.object(ENGINES), good);
    bench
        .api
        .edit(POOL, |pool| pool["spec"]["placement"]["affinity"] = json!({}));
    bench.pass().await.expect("works");
    assert_eq!(
        bench.api.object(ENGINES).expect("is there")["spec"]["replicas"],
        9
    );
    assert_eq!(bench.condition(condition::DEGRADED).0, "False");
}

#[tokio::test]
async fn a_pool_that_cannot_be_read_says_so_and_stops_no_other() {
    let bench = start(&json!({})).await;
    bench.pass().await.expect("works");
    let good = bench.api.object(ENGINES);
    bench
        .api
        .edit(POOL, |pool| pool["spec"]["replicas"] = json!("many"));
    bench.pass().await.expect("works");
    let (state, why, message) = bench.condition(condition::DEGRADED);
    assert_eq!((state.as_str(), why.as_str()), ("True", reason::INVALID_SPEC));
    assert!(message.contains("cannot read"), "{message}");
    assert_eq!(bench.api.object(ENGINES), good);
    bench.writes();
    bench.pass().await.expect("works");
    assert_eq!(bench.writes(), Vec::<String>::new(), "it is told once");
}

#[tokio::test]
async fn what_is_not_asked_for_any_more_is_deleted() {
    let bench = start(&json!({"gateway": {"standalone": {}}})).await;
    bench.pass().await.expect("works");
    assert!(bench.api.paths().iter().any(|path| path.ends_with("/qwen-envoy")));
    bench.api.edit(POOL, |pool| pool["spec"]["gateway"] = json!({}));
    for _ in 0..2 {
        bench.pass().await.expect("works");
    }
    let left: Vec<_> = bench
        .api
        .paths()
        .into_iter()
        .filter(|path| path.ends_with("/qwen-envoy"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
    assert!(bench.api.object(ENGINES).is_some());
}

#[tokio::test]
async fn a_newer_operator_leaves_the_engines_of_an_unchanged_pool_alone() {
    let bench = start(&json!({})).await;
    bench.pass().await.expect("works");
    let before = bench.api.object(ENGINES).expect("is made");
    let Bench { api, context, .. } = bench;
    let newer = watching(context.client.clone(), api, "tool:2").await;
    newer.pass().await.expect("works");
    assert_eq!(newer.api.object(ENGINES).as_ref(), Some(&before));
    newer.api.edit(POOL, |pool| pool["spec"]["replicas"] = json!(1));
    newer.pass().await.expect("works");
    let scaled = newer.api.object(ENGINES).expect("is there");
    assert_eq!(
        (&scaled["spec"]["replicas"], &scaled["spec"]["template"]),
        (&json!(1), &before["spec"]["template"])
    );
    newer
        .api
        .edit(POOL, |pool| pool["spec"]["engine"]["maxNumSeqs"] = json!(17));
    newer.pass().await.expect("works");
    let changed = newer.api.object(ENGINES).expect("is there");
    assert_eq!(
        changed["metadata"]["annotations"]["lmetric.io/tool-image"],
        "tool:2"
    );
    assert_eq!(
        newer.api.object(POOL).expect("is there")["status"]["toolImage"],
        "tool:2"
    );
}

#[tokio::test]
async fn a_refused_request_is_tried_again_after_a_growing_wait() {
    let bench = start(&json!({})).await;
    bench.api.refuse(lmetric_testkit::fake_api::Refusal {
        method: http::Method::PATCH,
        path: "/deployments/".to_owned(),
        code: 500,
        reason: "InternalError".to_owned(),
        message: "etcd is away".to_owned(),
        times: 1,
    });
    let error = bench.pass().await.expect_err("fails");
    assert_eq!(error.kind(), "apply");
    bench.context.backoff.failed("0b5e", &mut rand::rng());
    bench.pass().await.expect("works");
    assert_eq!(
        bench.context.backoff.failing(),
        0,
        "a success forgets the failures"
    );
}
