//! One object.

use std::time::Duration;

use kube::{
    Api,
    api::{Patch, PatchParams},
    runtime::reflector::{ObjectRef, Store},
};
use lmetric_api::pool::{
    InferencePool,
    names::{FIELD_MANAGER, annotation},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Applier, ApplyError, Child, What, kind_name,
    memory::{Adopts, Owner, Remembered, Step, step},
    request,
};
use crate::metrics::Verb;

/// Longest wait for one answer of the API server.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl Applier<'_> {
    /// The object as the API server has it, or what a person has to do about it.
    pub(super) async fn one<K: Child>(
        &self,
        prepared: K,
        store: &Store<K>,
    ) -> Result<Result<K, What>, ApplyError> {
        let kind = K::kind(&()).into_owned();
        let name = prepared.meta().name.clone().unwrap_or_default();
        let (payload, hash) = payload(&prepared).map_err(|source| ApplyError::Json {
            kind: kind.clone(),
            name: name.clone(),
            source,
        })?;
        let owner = Owner {
            uid: self.uid,
            pool: self.pool,
            adopts: if kind == "PersistentVolumeClaim" {
                Adopts::Labelled
            } else {
                Adopts::Applied
            },
        };
        let api = Api::<K>::namespaced(self.client.clone(), self.namespace);
        let remembered = self.memory.get(&kind, self.namespace, &name);
        let known = store.get(&ObjectRef::new(&name).within(self.namespace));
        let decide = |live: Option<&K>, fresh| {
            step(
                live.map(K::meta),
                remembered.as_ref(),
                prepared.meta(),
                &hash,
                owner,
                fresh,
            )
        };
        let mut live = known.map(|object| (*object).clone());
        let mut next = decide(live.as_ref(), false);
        if next == Step::Look {
            live = self.answer::<K, _>("get", &name, timeout(PATIENCE, api.get_opt(&name)).await)?;
            next = decide(live.as_ref(), true);
        }
        match (next, live) {
            (Step::Conflict, _) => return Ok(Err(What::Conflict)),
            (Step::Keep, Some(live)) => return Ok(Ok(live)),
            // what gets a dying owner dies with it
            (Step::Adopt, Some(live)) if !Box::pin(self.pool_stays()).await? => return Ok(Ok(live)),
            _ => {}
        }
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&payload);
        self.metrics.wrote(kind_name::<K>(), Verb::Apply);
        let applied = match timeout(PATIENCE, api.patch(&name, &parameters, &patch)).await {
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 422) => {
                return Ok(Err(What::Invalid(status.message)));
            }
            Ok(Err(kube::Error::Api(status))) if is_refusal(status.code) => {
                return Ok(Err(What::Refused(status.message)));
            }
            answer => self.answer::<K, _>("apply", &name, answer)?,
        };
        tracing::info!(kind, name, namespace = self.namespace, "applied");
        self.memory.put(
            &kind,
            self.namespace,
            &name,
            Remembered::of(&hash, K::meta(&applied)),
        );
        Ok(Ok(applied))
    }

    /// Whether the API server still has the pool, and nobody has deleted it: the watch may be behind.
    async fn pool_stays(&self) -> Result<bool, ApplyError> {
        let pools = Api::<InferencePool>::namespaced(self.client.clone(), self.namespace);
        let asked = timeout(PATIENCE, pools.get_metadata_opt(self.pool)).await;
        let pool = self.answer::<InferencePool, _>("get", self.pool, asked)?;
        Ok(pool.is_some_and(|pool| {
            pool.metadata.uid.as_deref() == Some(self.uid) && pool.metadata.deletion_timestamp.is_none()
        }))
    }

    pub(super) fn answer<K: Child, T>(
        &self,
        verb: &'static str,
        name: &str,
        answer: Result<Result<T, kube::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, ApplyError> {
        let _ = self;
        answer
            .unwrap_or_else(|elapsed| Err(kube::Error::Service(elapsed.into())))
            .map_err(|error| request::<K>(verb, name, error))
    }
}

/// What is sent, with its own hash as an annotation. Status and what only the API server sets stay out.
pub(super) fn payload<K: Child>(object: &K) -> Result<(Value, String), serde_json::Error> {
    let mut payload = serde_json::to_value(object)?;
    if let Some(fields) = payload.as_object_mut() {
        fields.remove("status");
    }
    let hash = hash(&payload);
    payload["metadata"]["annotations"][annotation::APPLIED] = json!(hash);
    Ok((payload, hash))
}

/// Hash of a JSON value, as text.
pub(crate) fn hash(value: &Value) -> String {
    format!("{:016x}", xxh3_64(value.to_string().as_bytes()))
}

/// Trying again at once is of no use: forbidden (quota, Pod Security, a webhook, rights), or no such API.
const fn is_refusal(code: u16) -> bool {
    matches!(code, 403 | 404 | 405 | 413)
}
