//! Objects of other people that decide how a pool is plugged in: a change wakes the pools that name them.

use kube::{
    Api,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};
use lmetric_api::{
    foreign::{
        envoy_gateway::ClientTrafficPolicy,
        gateway::{Gateway, GatewayClass},
    },
    pool::InferencePool,
};
use tokio::sync::watch;

use super::{
    Apis, Guarded, PoolRef, Reach,
    kind::{Namespaced, Watch},
};
use crate::gateway::names_gateway;

/// Gateways that pools may name.
pub(super) fn gateways(watch: &Watch, apis: watch::Receiver<Apis>, pools: Store<Guarded>) -> Store<Gateway> {
    watch.theirs(
        "gateways",
        apis,
        |apis| apis.gateways,
        near_or_far(watch),
        move |gateway: &Gateway| {
            let meta = &gateway.metadata;
            let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
            those(&pools, |pool| {
                names_gateway(pool, namespace.unwrap_or_default(), name.unwrap_or_default())
            })
        },
    )
}

/// Classes: any of them may be that of a Gateway which a pool names.
pub(super) fn classes(
    watch: &Watch,
    apis: watch::Receiver<Apis>,
    pools: Store<Guarded>,
) -> Store<GatewayClass> {
    let client = watch.client.clone();
    let api = move |reach| (reach == Reach::Cluster).then(|| Api::all(client.clone()));
    watch.theirs(
        "gateway classes",
        apis,
        |apis| apis.gateway_classes,
        api,
        move |_: &GatewayClass| those(&pools, |pool| !pool.spec.gateway.parent_refs.is_empty()),
    )
}

/// Policies, which are about Gateways of their own namespace.
pub(super) fn client_policies(
    watch: &Watch,
    apis: watch::Receiver<Apis>,
    pools: Store<Guarded>,
) -> Store<ClientTrafficPolicy> {
    let reach = |apis: &Apis| apis.client_policies;
    watch.theirs(
        "client policies",
        apis,
        reach,
        near_or_far(watch),
        move |policy: &ClientTrafficPolicy| {
            let namespace = policy.metadata.namespace.clone().unwrap_or_default();
            those(&pools, |pool| {
                let own = pool.metadata.namespace.as_ref();
                let mut references = pool.spec.gateway.parent_refs.iter();
                references.any(|reference| reference.namespace.as_ref().or(own) == Some(&namespace))
            })
        },
    )
}

/// Everywhere, or in the namespace that is served.
fn near_or_far<K: Namespaced>(
    watch: &Watch,
) -> impl Fn(Reach) -> Option<Api<DeserializeGuard<K>>> + Send + Sync + use<K> {
    let (client, scope) = (watch.client.clone(), watch.scope.clone());
    move |reach| match reach {
        Reach::Absent | Reach::Hidden => None,
        Reach::Namespace => Some(scope.api(&client)),
        Reach::Cluster => Some(Api::all(client.clone())),
    }
}

fn those(pools: &Store<Guarded>, are: impl Fn(&InferencePool) -> bool) -> Vec<PoolRef> {
    let state = pools.state();
    let readable = state.iter().filter(|pool| pool.0.as_ref().is_ok_and(&are));
    readable.map(|pool| ObjectRef::from_obj(&**pool)).collect()
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use futures::StreamExt as _;
    use lmetric_telemetry::Tasks;
    use lmetric_testkit::fake_api::FakeApi;
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::{
        args::Scope,
        metrics::Metrics,
        testing,
        watch::{Doubts, Stores, Wakes},
    };

    const GATEWAY: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/edge/gateways/public";
    const CLASS: &str = "/apis/gateway.networking.k8s.io/v1/gatewayclasses/c";
    const POLICY: &str = "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/edge/clienttrafficpolicies/p";
    const ELSEWHERE: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/other/gateways/public";

    fn put_pool(api: &FakeApi, name: &str, references: &Value) {
        let mut pool =
            serde_json::to_value(testing::pool(&json!({"gateway": {"parentRefs": references}}))).unwrap();
        pool["metadata"] = json!({"uid": name});
        api.put(
            &format!("/apis/lmetric.io/v1alpha1/namespaces/models/inferencepools/{name}"),
            pool,
        );
    }

    #[tokio::test]
    async fn pools_are_woken_by_what_their_gateways_depend_on_as_far_as_it_may_be_read() {
        let (client, api) = FakeApi::start();
        put_pool(&api, "with", &json!([{"name": "public", "namespace": "edge"}]));
        put_pool(&api, "without", &json!([]));
        let (tasks, _ended) = Tasks::new();
        let metrics = Metrics::new(&mut lmetric_telemetry::registry());
        let (tell, apis) = watch::channel(Apis::default());
        let wakes = Wakes::default();
        let stores = Stores::start(
            &client,
            &Scope::Cluster,
            &apis,
            &Doubts::default(),
            &wakes,
            &metrics,
            &tasks,
        );
        stores.synced().await.unwrap();
        let mut woken = pin!(wakes.stream());
        let mut seen = vec![woken.next().await.unwrap().name, woken.next().await.unwrap().name];
        seen.sort();
        assert_eq!(seen, ["with", "without"]);
        let all = Apis {
            gateways: Reach::Cluster,
            gateway_classes: Reach::Cluster,
            client_policies: Reach::Cluster,
            ..Apis::default()
        };
        tell.send_replace(all);
        stores.settled(all).await;
        for (path, object) in [
            (
                GATEWAY,
                json!({"spec": {"gatewayClassName": "c", "listeners": []}}),
            ),
            (
                CLASS,
                json!({"spec": {"controllerName": "istio.io/gateway-controller"}}),
            ),
            (POLICY, json!({"spec": {"connection": {"bufferLimit": "64Mi"}}})),
        ] {
            api.put(path, object);
            let pool = timeout(Duration::from_secs(5), woken.next()).await.expect(path);
            assert_eq!(pool.map(|pool| pool.name).as_deref(), Some("with"), "{path}");
        }
        api.put(
            ELSEWHERE,
            json!({"spec": {"gatewayClassName": "c", "listeners": []}}),
        );
        let quiet = timeout(Duration::from_millis(300), woken.next()).await;
        assert!(quiet.is_err(), "somebody else's Gateway of the same name");
        tell.send_replace(Apis::default());
        let pool = timeout(Duration::from_secs(5), async {
            while !stores.gateways.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        pool.await
            .expect("a store of what is not installed any more is empty");
    }
}
