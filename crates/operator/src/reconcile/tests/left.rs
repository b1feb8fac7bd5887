//! Objects that lost their owner or their account.

use super::*;

const PICKER: &str = "/apis/apps/v1/namespaces/models/deployments/qwen-picker";
const PICKER_ACCOUNT: &str = "/api/v1/namespaces/models/serviceaccounts/qwen-picker";
const ENGINE_ACCOUNT: &str = "/api/v1/namespaces/models/serviceaccounts/qwen-engine";

impl Bench {
    fn uid(&self, path: &str) -> Value {
        self.api.object(path).expect("is there")["metadata"]["uid"].clone()
    }

    /// What the pickers' pods say about their account.
    fn bound(&self) -> Value {
        let pickers = self.api.object(PICKER).expect("is there");
        pickers["spec"]["template"]["metadata"]["annotations"]["lmetric.io/service-account"].clone()
    }

    fn children(&self) -> Vec<String> {
        let paths = self.api.paths().into_iter();
        paths
            .filter(|path| path != POOL && !path.contains("/events"))
            .collect()
    }
}

#[tokio::test]
async fn a_picker_account_that_was_made_anew_rolls_the_pickers_and_no_engine() {
    let bench = start(&json!({})).await;
    bench.pass().await.expect("works");
    assert_eq!(bench.bound(), bench.uid(PICKER_ACCOUNT));
    let pickers = bench
        .writes()
        .iter()
        .filter(|write| write.contains(PICKER))
        .count();
    assert_eq!(pickers, 1, "the first pickers are not rolled");
    let engines = bench.api.object(ENGINES);
    let first = bench.bound();
    bench.api.remove(PICKER_ACCOUNT);
    bench.api.remove(ENGINE_ACCOUNT);
    bench.pass().await.expect("works");
    assert_eq!(bench.bound(), bench.uid(PICKER_ACCOUNT));
    assert_ne!(bench.bound(), first);
    assert!(bench.api.object(ENGINE_ACCOUNT).is_some());
    assert_eq!(bench.api.object(ENGINES), engines);
}

#[tokio::test]
async fn somebody_elses_account_does_not_roll_the_pickers() {
    let bench = start(&json!({})).await;
    bench.pass().await.expect("works");
    let pickers = bench.api.object(PICKER);
    bench.api.remove(PICKER_ACCOUNT);
    bench.api.put(
        PICKER_ACCOUNT,
        json!({"apiVersion": "v1", "kind": "ServiceAccount"}),
    );
    for _ in 0..100 {
        bench.pass().await.expect("works");
        if bench.condition(condition::DEGRADED).1 == reason::NAME_CONFLICT {
            break;
        }
        // the watch may still show the first account
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(bench.condition(condition::DEGRADED).1, reason::NAME_CONFLICT);
    assert_eq!(bench.api.object(PICKER), pickers);
}

/// `kubectl delete --cascade=orphan`, and the same pool once more.
async fn come_back(bench: Bench, prepare: impl Fn(&mut Value, &str)) -> Bench {
    for path in bench.children() {
        bench.api.edit(&path, |object| {
            object["metadata"]["ownerReferences"] = json!([]);
            object["metadata"]["managedFields"] =
                json!([{"manager": "lmetric-operator", "operation": "Apply"}]);
            prepare(object, &path);
        });
    }
    bench.api.remove(POOL);
    let mut second = pool(&json!({"gateway": {"standalone": {}}}));
    second["metadata"]["uid"] = json!("second");
    bench.api.put(POOL, second);
    bench.writes();
    let Bench { api, context, .. } = bench;
    watching(context.client.clone(), api, "tool:2").await
}

#[tokio::test]
async fn a_pool_that_comes_back_takes_up_what_it_left_as_it_is() {
    let bench = start(&json!({"gateway": {"standalone": {}}})).await;
    bench.pass().await.expect("works");
    let (engines, children) = (bench.api.object(ENGINES).expect("is made"), bench.children());
    let back = come_back(bench, |_, _| {}).await;
    back.pass().await.expect("works");
    assert_eq!(back.condition(condition::DEGRADED).0, "False");
    assert_eq!(back.children(), children);
    for path in children {
        let object = back.api.object(&path).expect("is there");
        assert_eq!(
            object["metadata"]["ownerReferences"][0]["uid"], "second",
            "{path}"
        );
    }
    let now = back.api.object(ENGINES).expect("is there");
    assert_eq!(now["spec"]["template"], engines["spec"]["template"]);
}

#[tokio::test]
async fn what_a_stranger_made_of_our_names_is_told_at_once_and_left() {
    let bench = start(&json!({"gateway": {"standalone": {}}})).await;
    bench.pass().await.expect("works");
    let theirs = ["/networkpolicies/qwen-engine", "/services/qwen-envoy"];
    let back = come_back(bench, |object, path| {
        if theirs.iter().any(|end| path.ends_with(end)) {
            object["metadata"]["managedFields"] = json!([{"manager": "velero", "operation": "Update"}]);
        }
    })
    .await;
    back.pass().await.expect("works");
    let (_, why, message) = back.condition(condition::DEGRADED);
    assert_eq!(why, reason::NAME_CONFLICT);
    for name in ["NetworkPolicy qwen-engine", "Service qwen-envoy"] {
        assert!(message.contains(name), "{message}");
    }
    let policy = back
        .api
        .object("/apis/networking.k8s.io/v1/namespaces/models/networkpolicies/qwen-engine")
        .expect("is there");
    assert_eq!(policy["metadata"]["ownerReferences"], json!([]));
}
