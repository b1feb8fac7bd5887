//! What the cluster says about a pool: everything that the later, pure steps need, read once.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Event, PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource as _, ResourceExt as _, api::ListParams, runtime::reflector::ObjectRef};
use lmetric_api::pool::{Component, InferencePool, names, names::label};
use tokio::time::timeout;

use crate::{
    gateway::{self, Gateways},
    status::pod::{is_going, stuck_on_volumes, waits_for_claim},
    watch::{Apis, Stores},
};

/// Facts about one pool.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The pool.
    pub pool: Arc<InferencePool>,
    /// Now.
    pub now: Timestamp,
    /// Installed optional APIs.
    pub apis: Apis,
    /// The engines' Deployment as it runs.
    pub engines: Option<Arc<Deployment>>,
    /// ReplicaSets of the engines.
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    /// Engines' pods.
    pub engine_pods: Vec<Arc<Pod>>,
    /// Pickers' pods.
    pub picker_pods: Vec<Arc<Pod>>,
    /// Envoys' pods.
    pub envoy_pods: Vec<Arc<Pod>>,
    /// The claim of the cache.
    pub claim: Option<Arc<PersistentVolumeClaim>>,
    /// Somebody's Gateways, and what was made for them.
    pub gateways: Gateways,
    /// What the kubelet says about the volumes of an engine that waits for them.
    pub volume_trouble: Option<String>,
    /// When an engine was last seen to be ending, as far as this process has seen it.
    pub last_ending: Option<Timestamp>,
    /// What the provisioner says about the cache's claim, while an engine waits for it.
    pub claim_trouble: Option<String>,
}

/// How long the answer about an engine's Events may take; without it a reason is less exact, nothing more.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// Reads the stores, and the Events of an engine that waits for its volumes or of the claim that it waits for.
pub async fn dereference(pool: &Arc<InferencePool>, stores: &Stores, apis: Apis, client: &Client) -> Facts {
    let name = pool.name_any();
    let namespace = pool.namespace().unwrap_or_default();
    let now = Timestamp::now();
    let pods = Stores::of(&stores.pods, &namespace, &name);
    let of = |component: Component| -> Vec<Arc<Pod>> {
        let mut pods: Vec<_> = pods
            .iter()
            .filter(|pod| is_part(pod.labels().get(label::COMPONENT), component))
            .cloned()
            .collect();
        pods.sort_by_key(|pod| pod.name_any());
        pods
    };
    let engine_pods = of(Component::Engine);
    let volume_trouble = match engine_pods
        .iter()
        .find(|pod| !is_going(pod) && stuck_on_volumes(pod, now))
    {
        Some(pod) => warning(pod.meta(), &OF_VOLUMES, client).await,
        None => None,
    };
    let within = |name: String| ObjectRef::new(&name).within(&namespace);
    let claim = stores.claims.get(&within(names::cache_claim(&name)));
    let claim_trouble = match &claim {
        Some(claim) if engine_pods.iter().any(|pod| waits_for_claim(pod)) => {
            warning(claim.meta(), &OF_CLAIMS, client).await
        }
        _ => None,
    };
    Facts {
        pool: pool.clone(),
        now,
        apis,
        engines: stores
            .deployments
            .get(&ObjectRef::new(&Component::Engine.object_name(&name)).within(&namespace)),
        replica_sets: Stores::of(&stores.replica_sets, &namespace, &name)
            .into_iter()
            .filter(|set| is_part(set.labels().get(label::COMPONENT), Component::Engine))
            .collect(),
        picker_pods: of(Component::Picker),
        envoy_pods: of(Component::Envoy),
        engine_pods,
        claim,
        gateways: gateway::look(pool, stores, apis),
        volume_trouble,
        last_ending: None,
        claim_trouble,
    }
}

fn is_part(value: Option<&String>, component: Component) -> bool {
    value.is_some_and(|value| value == component.as_str())
}

/// Reasons of Events about a pod's volumes.
const OF_VOLUMES: [&str; 3] = ["FailedMount", "FailedAttachVolume", "FailedMapVolume"];
/// Reasons of Events about a claim.
const OF_CLAIMS: [&str; 2] = ["ProvisioningFailed", "FailedBinding"];

/// The newest Event about the object with one of these reasons.
async fn warning(about: &ObjectMeta, reasons: &[&str], client: &Client) -> Option<String> {
    let events = Api::<Event>::namespaced(client.clone(), about.namespace.as_deref()?);
    let selector = format!("involvedObject.uid={}", about.uid.as_deref()?);
    let parameters = ListParams::default().fields(&selector).limit(100);
    let list = timeout(PATIENCE, events.list(&parameters)).await.ok()?.ok()?;
    list.items
        .into_iter()
        .filter(|event| {
            event
                .reason
                .as_deref()
                .is_some_and(|reason| reasons.contains(&reason))
        })
        .max_by(|one, other| {
            one.metadata
                .creation_timestamp
                .cmp(&other.metadata.creation_timestamp)
        })
        .and_then(|event| event.message)
}
