//! What a pool owned and does not need any more.

use kube::{
    Api,
    api::{DeleteParams, Preconditions},
    runtime::reflector::Store,
};
use lmetric_api::pool::names::label;
use tokio::time::timeout;

use super::{Applier, ApplyError, Child, one::PATIENCE};
use crate::{metrics::Verb, watch::Stores};

impl Applier<'_> {
    /// Deletes the pool's objects of a kind that are not named in `built`: only those that carry our label, our mark of
    /// management and the pool's own owner reference, and only the very object that was seen.
    pub(super) async fn delete_orphans<K: Child>(
        &self,
        built: &[String],
        store: &Store<K>,
    ) -> Result<(), ApplyError> {
        for object in Stores::of(store, self.namespace, self.pool) {
            let meta = object.meta();
            let name = meta.name.clone().unwrap_or_default();
            let managed = meta
                .labels
                .as_ref()
                .and_then(|labels| labels.get(label::MANAGED_BY))
                .is_some_and(|value| value == label::MANAGED_BY_VALUE);
            let owners = meta.owner_references.as_deref().unwrap_or_default();
            let owned = owners.iter().any(|owner| owner.uid == self.uid);
            if built.contains(&name) || !managed || !owned || meta.deletion_timestamp.is_some() {
                continue;
            }
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: meta.uid.clone(),
                    resource_version: None,
                }),
                ..DeleteParams::background()
            };
            let api = Api::<K>::namespaced(self.client.clone(), self.namespace);
            self.metrics.wrote(super::kind_name::<K>(), Verb::Delete);
            match timeout(PATIENCE, api.delete(&name, &parameters)).await {
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
                answer => {
                    self.answer::<K, _>("delete", &name, answer)?;
                    tracing::info!(kind = %K::kind(&()), name, namespace = self.namespace, "deleted what is not needed any more");
                }
            }
            self.memory.forget(&K::kind(&()), self.namespace, &name);
        }
        Ok(())
    }
}
