//! The status to the API server, if it says something new.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
    core::error_boundary::InvalidObject,
};
use lmetric_api::pool::{
    InferencePool, InferencePoolStatus, condition::condition, names::FIELD_MANAGER, reason,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::words::Words;

/// Longest wait for the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Field manager of what is said of pools that cannot be read.
const UNREADABLE_MANAGER: &str = "lmetric-operator-unreadable";

/// A status could not be written.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The API server said so.
    #[error("cannot write the status of {name}: {words}", name = .0, words = Words(&**.1))]
    Request(String, #[source] Box<kube::Error>),
    /// The API server did not answer.
    #[error("the API server did not answer about the status of {0} within {PATIENCE:?}")]
    Slow(String),
}

/// The status that was written last to each pool, by UID, with the resourceVersion that came of it: the watch may be
/// behind.
#[derive(Debug, Default)]
pub struct Written(Mutex<HashMap<String, (u64, InferencePoolStatus)>>);

impl Written {
    /// The pool's status as the API server has it, as far as known here.
    pub fn newest(&self, pool: &InferencePool) -> InferencePoolStatus {
        let shown = || pool.status.clone().unwrap_or_default();
        let written = self.0.lock();
        let Some((version, status)) = pool.metadata.uid.as_ref().and_then(|uid| written.get(uid)) else {
            return shown();
        };
        match version_of(pool) {
            Some(at) if at < *version => status.clone(),
            _ => shown(),
        }
    }

    /// Forgets a pool that is gone.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Forgets every pool that is not `alive`, by UID.
    pub fn keep(&self, alive: &HashSet<String>) {
        self.0.lock().retain(|uid, _| alive.contains(uid));
    }

    /// Pools with a status that was written.
    pub fn known(&self) -> usize {
        self.0.lock().len()
    }
}

fn version_of(pool: &InferencePool) -> Option<u64> {
    pool.metadata.resource_version.as_ref()?.parse().ok()
}

/// Writes `status` unless it equals `before`; whether it wrote.
pub async fn write(
    client: &Client,
    pool: &InferencePool,
    before: &InferencePoolStatus,
    status: &InferencePoolStatus,
    written: &Written,
) -> Result<bool, StatusError> {
    if before == status {
        return Ok(false);
    }
    let name = pool.name_any();
    let body = json!({
        "apiVersion": "lmetric.io/v1alpha1",
        "kind": "InferencePool",
        // of this very pool, not of the next one with its name
        "metadata": {"name": name, "uid": pool.metadata.uid},
        "status": status,
    });
    let after = send(
        client,
        &pool.namespace().unwrap_or_default(),
        &name,
        FIELD_MANAGER,
        &body,
    )
    .await?;
    if let (Some(uid), Some(version)) = (pool.metadata.uid.clone(), after) {
        written.0.lock().insert(uid, (version, status.clone()));
    }
    Ok(true)
}

/// Says of a pool that cannot be read what is wrong with it. What it owns goes on as it is.
pub async fn tell_unreadable(
    client: &Client,
    invalid: &InvalidObject,
    told: &Written,
) -> Result<bool, StatusError> {
    let meta = &invalid.metadata;
    let (name, namespace) = (
        meta.name.clone().unwrap_or_default(),
        meta.namespace.clone().unwrap_or_default(),
    );
    let uid = meta.uid.clone().unwrap_or_default();
    let message = format!(
        "this operator cannot read the object: {}; correct that field (kubectl edit inferencepools.lmetric.io {name}). What ran before goes on",
        invalid.error
    );
    {
        let told = told.0.lock();
        let says = told
            .get(&uid)
            .and_then(|(_, status)| status.condition(condition::DEGRADED));
        if says.is_some_and(|degraded| degraded.message == message) {
            return Ok(false);
        }
    }
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let degraded = json!({
        "type": condition::DEGRADED, "status": "True", "reason": reason::INVALID_SPEC, "message": message,
        "lastTransitionTime": now.to_string(), "observedGeneration": meta.generation,
    });
    let body = json!({
        "apiVersion": "lmetric.io/v1alpha1",
        "kind": "InferencePool",
        "metadata": {"name": name, "uid": meta.uid},
        "status": {"conditions": [degraded]},
    });
    // a manager of its own: the counts of the last good status stay
    let after = send(client, &namespace, &name, UNREADABLE_MANAGER, &body).await?;
    let status = serde_json::from_value(body["status"].clone()).unwrap_or_default();
    told.0.lock().insert(uid, (after.unwrap_or(0), status));
    Ok(true)
}

/// The resourceVersion after the write.
async fn send(
    client: &Client,
    namespace: &str,
    name: &str,
    manager: &str,
    body: &Value,
) -> Result<Option<u64>, StatusError> {
    // the answer is not read as a pool: it may be one that cannot be
    let gvk = kube::core::GroupVersionKind::gvk("lmetric.io", "v1alpha1", "InferencePool");
    let resource = kube::core::ApiResource::from_gvk_with_plural(&gvk, "inferencepools");
    let api: Api<kube::core::DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let parameters = PatchParams::apply(manager).force();
    match timeout(PATIENCE, api.patch_status(name, &parameters, &Patch::Apply(body))).await {
        Ok(Ok(after)) => Ok(after
            .metadata
            .resource_version
            .and_then(|version| version.parse().ok())),
        Ok(Err(error)) => Err(StatusError::Request(name.to_owned(), Box::new(error))),
        Err(_) => Err(StatusError::Slow(name.to_owned())),
    }
}
