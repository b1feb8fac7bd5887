use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};

use super::*;

const PATH: &str = "/api/v1/namespaces/a/configmaps/m";

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}

fn maps(client: &kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "a")
}

#[tokio::test]
async fn apply_makes_keeps_and_drops_what_one_manager_says() {
    let (client, api) = FakeApi::start();
    let params = PatchParams::apply("one").force();
    let apply = async |data: Value| {
        maps(&client)
            .patch("m", &params, &Patch::Apply(map(&data)))
            .await
            .unwrap()
    };
    let made = apply(json!({"x": "1", "y": "2"})).await;
    assert!(made.metadata.uid.is_some());
    api.edit(PATH, |object| object["data"]["theirs"] = "3".into());
    let version = maps(&client).get("m").await.unwrap().metadata.resource_version;
    let changed = apply(json!({"x": "1"})).await;
    let keys: Vec<_> = changed.data.unwrap().into_keys().collect();
    assert_eq!(keys, ["theirs", "x"]);
    assert_ne!(changed.metadata.resource_version, version);
    let again = apply(json!({"x": "1"})).await;
    assert_eq!(again.metadata.resource_version, changed.metadata.resource_version);
    let writes = api.take_writes();
    assert_eq!(writes.len(), 3);
    assert!(writes[0].query.contains("fieldManager=one"));
    assert!(api.take_writes().is_empty());
}

#[tokio::test]
async fn a_watch_shows_what_happens_after_the_list() {
    let (client, api) = FakeApi::start();
    api.put(PATH, map(&json!({})));
    let list = maps(&client).list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let version = list.metadata.resource_version.unwrap();
    let watch = maps(&client)
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap();
    api.edit(PATH, |object| object["data"]["x"] = "1".into());
    api.put("/api/v1/namespaces/other/configmaps/m", map(&json!({})));
    maps(&client).delete("m", &DeleteParams::default()).await.unwrap();
    let mut watch = std::pin::pin!(watch);
    let modified = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(modified, WatchEvent::Modified(map) if map.data.as_ref().unwrap()["x"] == "1"));
    let deleted = watch.try_next().await.unwrap().unwrap();
    assert!(matches!(deleted, WatchEvent::Deleted(_)));
}

#[tokio::test]
async fn a_stale_replace_and_a_second_create_are_conflicts() {
    let (client, api) = FakeApi::start();
    let object: ConfigMap = serde_json::from_value(map(&json!({}))).unwrap();
    let made = maps(&client)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    let again = maps(&client)
        .create(&PostParams::default(), &object)
        .await
        .unwrap_err();
    assert!(matches!(again, kube::Error::Api(status) if status.reason == "AlreadyExists"));
    api.edit(PATH, |object| object["data"]["x"] = "1".into());
    let stale = maps(&client)
        .replace("m", &PostParams::default(), &made)
        .await
        .unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.code == 409));
}

#[tokio::test]
async fn refusals_end_after_their_number() {
    let (client, api) = FakeApi::start();
    api.put(PATH, map(&json!({})));
    api.refuse(Refusal {
        method: Method::GET,
        path: "configmaps".to_owned(),
        code: 403,
        reason: "Forbidden".to_owned(),
        message: "no".to_owned(),
        times: 1,
    });
    let refused = maps(&client).get("m").await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.reason == "Forbidden"));
    maps(&client).get("m").await.unwrap();
}

#[tokio::test]
async fn a_watch_whose_history_is_gone_says_so_and_ends() {
    let (client, api) = FakeApi::start();
    api.put(PATH, map(&json!({})));
    let version = maps(&client)
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let watch = maps(&client)
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap();
    api.remove_and_expire(PATH);
    let events: Vec<_> = watch.try_collect().await.unwrap();
    assert!(matches!(&events[..], [WatchEvent::Error(status)] if status.code == 410));
    assert_eq!(api.paths(), Vec::<String>::new());
}

#[tokio::test]
async fn an_optional_api_is_known_while_it_is_installed() {
    let (client, api) = FakeApi::start();
    let kinds = async || {
        let list = client.list_api_group_resources("monitoring.coreos.com/v1").await;
        list.map(|list| {
            list.resources
                .into_iter()
                .map(|resource| resource.kind)
                .collect::<Vec<_>>()
        })
    };
    assert!(kinds().await.is_err());
    api.install("monitoring.coreos.com/v1", &["PodMonitor"]);
    assert_eq!(kinds().await.unwrap(), ["PodMonitor"]);
    api.install("monitoring.coreos.com/v1", &[]);
    assert!(kinds().await.is_err());
}
