//! Against an API server in memory.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::runtime::{
    reflector::{self, store::Writer},
    watcher,
};
use lmetric_testkit::fake_api::{FakeApi, Refusal};
use serde_json::{Value, json};

use super::*;

struct Bench {
    client: Client,
    api: FakeApi,
    memory: Memory,
    metrics: Metrics,
    store: Store<Deployment>,
    writer: Writer<Deployment>,
}

const POOL: &str = "/apis/lmetric.io/v1alpha1/namespaces/models/inferencepools/qwen";
const PATH: &str = "/apis/apps/v1/namespaces/models/deployments/qwen-engine";

impl Bench {
    fn new() -> Self {
        let (client, api) = FakeApi::start();
        let (store, writer) = reflector::store();
        Self {
            client,
            api,
            memory: Memory::default(),
            metrics: Metrics::new(&mut lmetric_telemetry::registry()),
            store,
            writer,
        }
    }

    fn applier(&self) -> Applier<'_> {
        Applier {
            client: &self.client,
            memory: &self.memory,
            metrics: &self.metrics,
            namespace: "models",
            pool: "qwen",
            uid: "0b5e",
        }
    }

    /// The watch shows what the API server holds.
    fn catch_up(&mut self) {
        self.writer.apply_watcher_event(&watcher::Event::Init);
        for path in self
            .api
            .paths()
            .iter()
            .filter(|path| path.contains("/deployments/"))
        {
            let object = self.api.object(path).expect("is listed");
            let object = serde_json::from_value(object).expect("a deployment");
            self.writer
                .apply_watcher_event(&watcher::Event::InitApply(object));
        }
        self.writer.apply_watcher_event(&watcher::Event::InitDone);
    }

    async fn one(&self, replicas: i32) -> Result<Deployment, What> {
        self.applier()
            .one(engines(replicas), &self.store)
            .await
            .expect("answers")
    }

    fn writes(&self) -> usize {
        self.api.take_writes().len()
    }
}

fn meta(name: &str, uid: &str) -> Value {
    json!({
        "name": name, "namespace": "models",
        "labels": {"lmetric.io/pool": "qwen", "app.kubernetes.io/managed-by": "lmetric-operator"},
        "ownerReferences": [{"apiVersion": "lmetric.io/v1alpha1", "kind": "InferencePool", "name": "qwen", "uid": uid}],
    })
}

fn engines(replicas: i32) -> Deployment {
    serde_json::from_value(json!({
        "metadata": meta("qwen-engine", "0b5e"),
        "spec": {"replicas": replicas, "selector": {}, "template": {}},
    }))
    .expect("a deployment")
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changed() {
    let mut bench = Bench::new();
    assert!(bench.one(4).await.is_ok());
    assert_eq!(bench.writes(), 1);
    // the watch is behind: asked, not written
    assert!(bench.one(4).await.is_ok());
    assert_eq!(bench.writes(), 0);
    bench.catch_up();
    for _ in 0..3 {
        assert!(bench.one(4).await.is_ok());
    }
    let calls = bench.api.calls().len();
    assert!(bench.one(4).await.is_ok());
    assert_eq!((bench.writes(), calls), (0, 0), "not even a question");
}

#[tokio::test]
async fn a_change_of_ours_and_a_change_of_theirs_are_written_once() {
    let mut bench = Bench::new();
    assert!(bench.one(4).await.is_ok());
    bench.catch_up();
    assert!(bench.one(5).await.is_ok());
    bench.catch_up();
    assert!(bench.one(5).await.is_ok());
    assert_eq!(bench.writes(), 2);
    bench
        .api
        .edit(PATH, |object| object["spec"]["replicas"] = json!(1));
    bench.catch_up();
    assert!(bench.one(5).await.is_ok());
    assert_eq!(bench.api.object(PATH).expect("is there")["spec"]["replicas"], 5);
    bench.catch_up();
    assert!(bench.one(5).await.is_ok());
    assert_eq!(bench.writes(), 1);
}

#[tokio::test]
async fn a_status_of_the_deployment_is_no_change() {
    let mut bench = Bench::new();
    assert!(bench.one(4).await.is_ok());
    bench
        .api
        .edit(PATH, |object| object["status"] = json!({"readyReplicas": 4}));
    bench.catch_up();
    assert!(bench.one(4).await.is_ok());
    assert_eq!(bench.writes(), 1);
}

#[tokio::test]
async fn a_restarted_operator_applies_once_and_changes_nothing() {
    let mut bench = Bench::new();
    assert!(bench.one(4).await.is_ok());
    let before = bench.api.object(PATH);
    bench.memory = Memory::default();
    bench.catch_up();
    assert!(bench.one(4).await.is_ok());
    assert!(bench.one(4).await.is_ok());
    assert_eq!((bench.writes(), bench.api.object(PATH)), (2, before));
}

#[tokio::test]
async fn an_object_of_somebody_else_is_a_conflict_and_is_not_touched() {
    for theirs in [
        json!({"metadata": {"name": "qwen-engine"}, "spec": {"replicas": 9, "selector": {}, "template": {}}}),
        json!({"metadata": meta("qwen-engine", "another"), "spec": {"replicas": 9, "selector": {}, "template": {}}}),
    ] {
        let mut bench = Bench::new();
        let stored = bench.api.put(PATH, theirs);
        assert_eq!(
            bench.one(4).await,
            Err(What::Conflict),
            "the watch does not show it"
        );
        bench.catch_up();
        assert_eq!(bench.one(4).await, Err(What::Conflict), "the watch shows it");
        assert_eq!((bench.writes(), bench.api.object(PATH)), (0, Some(stored)));
        bench.api.remove(PATH);
        assert!(bench.one(4).await.is_ok(), "once it is gone");
    }
}

#[tokio::test]
async fn only_orphans_of_this_very_pool_are_deleted() {
    let mut bench = Bench::new();
    let path = |name: &str| format!("/apis/apps/v1/namespaces/models/deployments/{name}");
    let spec = json!({"selector": {}, "template": {}});
    let put = |name: &str, meta: Value| {
        bench
            .api
            .put(&path(name), json!({"metadata": meta, "spec": spec.clone()}))
    };
    put("qwen-envoy", meta("qwen-envoy", "0b5e"));
    put("of-an-older-qwen", meta("of-an-older-qwen", "older"));
    let mut strange = meta("strange", "0b5e");
    strange["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
    put("strange", strange);
    let mut other = meta("other-engine", "0b5e");
    other["labels"]["lmetric.io/pool"] = json!("other");
    put("other-engine", other);
    bench.catch_up();
    let mut troubles = Vec::new();
    let applied = bench
        .applier()
        .kind(vec![engines(4)], &bench.store, &mut troubles)
        .await
        .expect("answers");
    assert_eq!((applied.len(), troubles.len()), (1, 0));
    let expected = ["of-an-older-qwen", "other-engine", "qwen-engine", "strange"].map(path);
    assert_eq!(bench.api.paths(), expected);
}

#[tokio::test]
async fn a_refusal_is_told_and_leaves_what_was() {
    let mut bench = Bench::new();
    assert!(bench.one(4).await.is_ok());
    let before = bench.api.object(PATH);
    bench.api.refuse(Refusal {
        method: http::Method::PATCH,
        path: PATH.to_owned(),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "exceeded quota: gpus".to_owned(),
        times: 1,
    });
    bench.catch_up();
    assert_eq!(
        bench.one(5).await,
        Err(What::Refused("exceeded quota: gpus".to_owned()))
    );
    assert_eq!(bench.api.object(PATH), before);
    bench.api.refuse(Refusal {
        method: http::Method::PATCH,
        path: PATH.to_owned(),
        code: 503,
        reason: "ServiceUnavailable".to_owned(),
        message: "later".to_owned(),
        times: 1,
    });
    let error = bench
        .applier()
        .one(engines(5), &bench.store)
        .await
        .expect_err("is tried again");
    assert!(
        error.to_string().contains("cannot apply Deployment qwen-engine"),
        "{error}"
    );
}

#[tokio::test]
async fn an_object_that_makes_no_sense_is_the_specifications_fault() {
    let bench = Bench::new();
    bench.api.refuse(Refusal {
        method: http::Method::PATCH,
        path: PATH.to_owned(),
        code: 422,
        reason: "Invalid".to_owned(),
        message: "volumeMounts[0].name: Not found: \"nowhere\"".to_owned(),
        times: 1,
    });
    let said = bench.one(5).await;
    assert!(
        matches!(&said, Err(What::Invalid(words)) if words.contains("nowhere")),
        "{said:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_given_up() {
    let bench = Bench::new();
    let (service, _handle) =
        tower_test::mock::pair::<http::Request<kube::client::Body>, http::Response<kube::client::Body>>();
    let client = Client::new(service, "default");
    let applier = Applier {
        client: &client,
        ..bench.applier()
    };
    let began = tokio::time::Instant::now();
    assert!(applier.one(engines(1), &bench.store).await.is_err());
    assert!(began.elapsed() <= Duration::from_secs(11));
}

#[test]
fn a_claim_that_outlives_its_pool_is_ours_by_its_labels() {
    let claim: PersistentVolumeClaim =
        serde_json::from_value(json!({"metadata": meta("qwen-cache", "0b5e"), "spec": {}})).expect("a claim");
    let mut live = claim.metadata.clone();
    live.owner_references = None;
    let step = |adopts| {
        let owner = memory::Owner {
            uid: "0b5e",
            pool: "qwen",
            adopts,
        };
        memory::step(Some(&live), None, &claim.metadata, "hash", owner, true)
    };
    assert_eq!(
        (step(memory::Adopts::Labelled), step(memory::Adopts::Applied)),
        (memory::Step::Adopt, memory::Step::Conflict)
    );
}

/// An object that was ours, after `kubectl delete --cascade=orphan`.
fn left(manager: &str) -> Value {
    let mut meta = meta("qwen-engine", "gone");
    meta["ownerReferences"] = json!([]);
    meta["managedFields"] = json!([{"manager": manager, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1"}]);
    json!({"metadata": meta, "spec": {"replicas": 4, "selector": {}, "template": {}}})
}

#[tokio::test]
async fn what_this_operator_applied_and_nobody_owns_any_more_is_taken_up_again() {
    let mut bench = Bench::new();
    bench.api.put(POOL, json!({"metadata": {"uid": "0b5e"}}));
    bench.api.put(PATH, left("lmetric-operator"));
    bench.catch_up();
    assert!(bench.one(4).await.is_ok());
    let object = bench.api.object(PATH).expect("is there");
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "0b5e");
    bench.catch_up();
    assert!(bench.one(4).await.is_ok());
    assert_eq!(bench.writes(), 1, "once");
}

#[tokio::test]
async fn an_owner_that_was_taken_away_while_the_pool_lives_is_put_back() {
    let mut bench = Bench::new();
    bench.api.put(POOL, json!({"metadata": {"uid": "0b5e"}}));
    assert!(bench.one(4).await.is_ok());
    bench.api.edit(PATH, |object| {
        object["metadata"]["ownerReferences"] = json!([]);
        object["metadata"]["managedFields"] = left("lmetric-operator")["metadata"]["managedFields"].clone();
    });
    bench.catch_up();
    assert!(bench.one(4).await.is_ok());
    let object = bench.api.object(PATH).expect("is there");
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "0b5e");
}

/// `kubectl delete --cascade=orphan` while the watch of pools is behind: whatever got its owner back would be collected.
#[tokio::test]
async fn nothing_is_given_to_a_pool_that_goes_or_is_gone_or_is_another_one() {
    let going = json!({"metadata": {"uid": "0b5e", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for pool in [Some(going), None, Some(json!({"metadata": {"uid": "next"}}))] {
        let mut bench = Bench::new();
        if let Some(pool) = pool {
            bench.api.put(POOL, pool);
        }
        let stored = bench.api.put(PATH, left("lmetric-operator"));
        bench.catch_up();
        assert!(bench.one(4).await.is_ok());
        let writes = bench.api.take_writes();
        assert_eq!((writes.len(), bench.api.object(PATH)), (0, Some(stored)));
    }
}

#[tokio::test]
async fn labels_alone_do_not_make_an_object_ours() {
    let mut of_another_pool = left("lmetric-operator");
    of_another_pool["metadata"]["labels"]["lmetric.io/pool"] = json!("other");
    let mut controlled = left("lmetric-operator");
    controlled["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]);
    for theirs in [left("helm"), of_another_pool, controlled] {
        let mut bench = Bench::new();
        let stored = bench.api.put(PATH, theirs);
        bench.catch_up();
        assert_eq!(bench.one(4).await, Err(What::Conflict));
        assert_eq!((bench.writes(), bench.api.object(PATH)), (0, Some(stored)));
    }
}

#[test]
fn the_payload_has_a_hash_and_no_status() {
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": meta("m", "0b5e"), "data": {"a": "b"}})).expect("a map");
    let (payload, hash) = one::payload(&map).expect("is JSON");
    assert_eq!(
        payload["metadata"]["annotations"]["lmetric.io/applied"],
        json!(hash)
    );
    assert_eq!(
        (payload["kind"].as_str(), payload.get("status")),
        (Some("ConfigMap"), None)
    );
    assert_eq!(
        one::payload(&map).expect("is JSON").1,
        hash,
        "equal objects, equal hash"
    );
}
