//! Against an API server in memory.

use std::time::Duration;

use lmetric_testkit::fake_api::{FakeApi, Refusal as Refused};
use serde_json::{Value, json};

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

struct Bench {
    client: Client,
    api: FakeApi,
    registry: Arc<PodRegistry>,
    sets: watch::Receiver<Option<EndpointSet>>,
    settings: watch::Sender<PodEndpoints>,
    token: CancellationToken,
    access: Access,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

fn selected(ports: &[u16]) -> PodEndpoints {
    PodEndpoints {
        pods: Some(Pods {
            selector: [("app".to_owned(), "vllm".to_owned())].into(),
            ports: ports.to_vec(),
        }),
        ..PodEndpoints::default()
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/ns/pods/{name}")
}

fn pod(name: &str, ip: &str, ready: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"app": "vllm"}},
        "spec": {"containers": [{"name": "engine"}]},
        "status": {
            "phase": "Running", "podIP": ip,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "containerStatuses": [{"name": "engine", "restartCount": 0, "ready": ready, "image": "", "imageID": ""}],
        },
    })
}

/// A server that holds `objects`, and a discovery that follows it.
fn bench(objects: &[(String, Value)], settings: PodEndpoints, pool: Option<PoolRef>) -> Bench {
    let (client, api) = FakeApi::start();
    for (path, object) in objects {
        api.put(path, object.clone());
    }
    let registry = Arc::new(PodRegistry::default());
    let (settings, followed) = watch::channel(settings);
    let (sender, sets) = watch::channel(None);
    let access = Access::default();
    let token = CancellationToken::new();
    let discovery = KubernetesDiscovery::new(KubernetesParts {
        client: client.clone(),
        namespace: "ns".to_owned(),
        pool,
        model: "p".to_owned(),
        settings: followed,
        registry: registry.clone(),
        access: access.clone(),
    });
    tokio::spawn(discovery.run(sender, token.clone()));
    Bench {
        client,
        api,
        registry,
        sets,
        settings,
        token,
        access,
    }
}

/// `address` of each endpoint, with `!` where it is not ready and `-` where it is terminating.
fn lines(set: &EndpointSet) -> Vec<String> {
    let line = |endpoint: &Endpoint| {
        let ready = if endpoint.ready { "" } else { "!" };
        let terminating = if endpoint.terminating { "-" } else { "" };
        format!("{ready}{terminating}{}", endpoint.address)
    };
    set.iter().map(line).collect()
}

impl Bench {
    async fn until(&mut self, expected: &[&str]) -> EndpointSet {
        let mut last = None;
        let wait = async {
            loop {
                let set = self.sets.borrow_and_update().clone();
                if let Some(set) = set {
                    if lines(&set) == expected {
                        return set;
                    }
                    last = Some(lines(&set));
                }
                self.sets.changed().await.expect("the discovery runs");
            }
        };
        let found = tokio::time::timeout(PATIENCE, wait).await;
        found.unwrap_or_else(|_| panic!("waited for {expected:?}, last seen {last:?}"))
    }
}

#[tokio::test]
async fn nothing_is_said_before_the_pods_were_listed_then_all_at_once() {
    let objects = [
        (path("a"), pod("a", "10.0.0.1", true)),
        (path("b"), pod("b", "10.0.0.2", true)),
    ];
    let mut bench = bench(&objects, selected(&[8000, 8001]), None);
    bench.sets.changed().await.expect("the discovery runs");
    let first = bench.sets.borrow().clone().expect("a set");
    assert_eq!(
        lines(&first),
        ["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001"]
    );
    assert_eq!(first[0].model, "p", "the pool's name");
    assert_eq!(first[0].incarnation, "uid-a/0");
}

#[tokio::test]
async fn an_empty_pool_is_known_to_be_empty() {
    let mut bench = bench(&[], selected(&[8000]), None);
    bench.until(&[]).await;
}

#[tokio::test]
async fn a_pod_comes_when_it_is_ready_and_takes_nothing_from_its_deletion_on() {
    let mut bench = bench(
        &[(path("a"), pod("a", "10.0.0.1", false))],
        selected(&[8000]),
        None,
    );
    bench.until(&[]).await;
    bench.api.put(&path("a"), pod("a", "10.0.0.1", true));
    bench.until(&["10.0.0.1:8000"]).await;
    bench.api.put(&path("a"), pod("a", "10.0.0.1", false));
    bench.until(&["!10.0.0.1:8000"]).await;
    bench.api.put(&path("a"), pod("a", "10.0.0.1", true));
    bench.until(&["10.0.0.1:8000"]).await;
    bench.api.edit(&path("a"), |pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z".into();
    });
    bench.until(&["-10.0.0.1:8000"]).await;
    bench.api.remove(&path("a"));
    bench.until(&[]).await;
}

#[tokio::test]
async fn a_restart_of_the_engines_container_is_another_incarnation() {
    let mut bench = bench(
        &[(path("a"), pod("a", "10.0.0.1", true))],
        selected(&[8000]),
        None,
    );
    bench.until(&["10.0.0.1:8000"]).await;
    bench.api.edit(&path("a"), |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] = 1.into();
        pod["status"]["conditions"][0]["status"] = "False".into();
    });
    let set = bench.until(&["!10.0.0.1:8000"]).await;
    assert_eq!(set[0].incarnation, "uid-a/1");
}

#[tokio::test]
async fn pods_of_other_labels_are_none_of_ours() {
    let mut other = pod("b", "10.0.0.2", true);
    other["metadata"]["labels"]["app"] = "web".into();
    let objects = [(path("a"), pod("a", "10.0.0.1", true)), (path("b"), other)];
    let mut bench = bench(&objects, selected(&[8000]), None);
    bench.until(&["10.0.0.1:8000"]).await;
    bench
        .api
        .edit(&path("a"), |pod| pod["metadata"]["labels"]["app"] = "web".into());
    bench.until(&[]).await;
}

#[tokio::test]
async fn an_address_that_was_given_to_another_pod_is_that_pods() {
    let mut ending = pod("a", "10.0.0.1", true);
    ending["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z".into();
    let objects = [(path("a"), ending), (path("b"), pod("b", "10.0.0.1", true))];
    let mut bench = bench(&objects, selected(&[8000]), None);
    let set = bench.until(&["10.0.0.1:8000"]).await;
    assert_eq!(set[0].pod.as_deref(), Some("uid-b"));
}

#[tokio::test]
async fn a_pod_is_known_to_drains_before_it_is_ready() {
    let mut bench = bench(
        &[(path("a"), pod("a", "10.0.0.1", false))],
        selected(&[8000]),
        None,
    );
    bench.until(&[]).await;
    let peer = "10.0.0.1".parse().expect("an address");
    assert_eq!(bench.registry.drain("uid-a", peer), Ok(()));
    bench.api.put(&path("a"), pod("a", "10.0.0.1", true));
    let set = bench.until(&["10.0.0.1:8000"]).await;
    assert!(bench.registry.is_drained(&set[0]));
}

#[tokio::test]
async fn new_settings_are_followed() {
    let mut bench = bench(
        &[(path("a"), pod("a", "10.0.0.1", true))],
        selected(&[8000]),
        None,
    );
    bench.until(&["10.0.0.1:8000"]).await;
    bench.settings.send_replace(selected(&[9000]));
    bench.until(&["10.0.0.1:9000"]).await;
    bench
        .settings
        .send_modify(|settings| settings.model = Some("other".to_owned()));
    for _ in 0..500 {
        let set = bench.sets.borrow().clone().expect("a set");
        if set[0].model == "other" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the model's name did not change");
}

fn gie() -> PoolRef {
    PoolRef {
        group: default_group(),
        namespace: "ns".to_owned(),
        name: "p".to_owned(),
    }
}

const GIE_PATH: &str = "/apis/inference.networking.k8s.io/v1/namespaces/ns/inferencepools/p";

fn pool_object(port: u16) -> Value {
    json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "p"},
        "spec": {"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": port}],
                 "endpointPickerRef": {"name": "epp", "port": {"number": 9002}}},
    })
}

#[tokio::test]
async fn a_pool_that_somebody_else_made_names_the_pods() {
    let mut bench = bench(
        &[(path("a"), pod("a", "10.0.0.1", true))],
        PodEndpoints::default(),
        Some(gie()),
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(bench.sets.borrow().is_none(), "no pool yet: nothing is known");
    bench.api.put(GIE_PATH, pool_object(8000));
    bench.until(&["10.0.0.1:8000"]).await;
    bench.api.put(GIE_PATH, pool_object(9000));
    bench.until(&["10.0.0.1:9000"]).await;
    bench.api.put(GIE_PATH, pool_object(0));
    tokio::time::sleep(Duration::from_millis(200)).await;
    bench.until(&["10.0.0.1:9000"]).await;
    bench.api.remove(GIE_PATH);
    bench.until(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn only_refused_watches_are_trouble() {
    for (code, words) in [(401, Some("token")), (403, Some("RoleBinding")), (503, None)] {
        let bench = bench(&[], selected(&[8000]), None);
        bench.api.refuse(Refused {
            method: http::Method::GET,
            path: "/pods".to_owned(),
            code,
            reason: "Refused".to_owned(),
            message: "no".to_owned(),
            times: usize::MAX,
        });
        tokio::time::sleep(Duration::from_mins(1)).await;
        let trouble = bench.access.trouble();
        assert_eq!(trouble.is_some(), words.is_some(), "{code}: {trouble:?}");
        let expected = words.unwrap_or_default();
        assert!(trouble.unwrap_or_default().contains(expected), "{code}");
    }
}

#[tokio::test]
async fn a_configuration_in_a_config_map_is_read_and_watched() {
    let path = "/api/v1/namespaces/ns/configmaps/p-picker";
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {KEY: text}});
    let Bench { client, api, .. } = &bench(&[], selected(&[8000]), None);
    api.put(path, map("one"));
    let config_map = ConfigMapRef {
        namespace: "ns".to_owned(),
        name: "p-picker".to_owned(),
    };
    assert_eq!(config_map.read(client).await.expect("it is there"), "one");
    let mut texts = config_map.watch(client.clone(), Access::default()).boxed();
    let mut next = async || {
        tokio::time::timeout(PATIENCE, texts.next())
            .await
            .expect("in time")
    };
    assert_eq!(next().await.as_deref(), Some("one"));
    api.put(path, map("two"));
    assert_eq!(next().await.as_deref(), Some("two"));
    api.put(
        path,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"other.yaml": "x"}}),
    );
    api.put(path, map("three"));
    assert_eq!(
        next().await.as_deref(),
        Some("three"),
        "a map without the key is passed over"
    );
}
