//! Pickers and the account that they run under.
//!
//! A pod's token is good for the very ServiceAccount that it was made for: when that is deleted and made again, all tokens
//! are void, and pods do not get new ones. So the pickers' template names the account by its UID, and a new account
//! rolls them. The account is applied first; a pool's first pickers have its UID already. Engines have no token and
//! are never rolled by their account.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ServiceAccount};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use lmetric_api::pool::Component;

use super::Applier;
use crate::build::{account_of_pickers, bind_pickers};

impl Applier<'_> {
    /// Writes the UID of the pickers' account into their template. Where it is not known, since the account is somebody
    /// else's, what runs stays as it is.
    pub(super) fn bind_pickers(
        &self,
        deployments: &mut [Deployment],
        accounts: &[ServiceAccount],
        known: &Store<Deployment>,
    ) {
        let name = Component::Picker.object_name(self.pool);
        let account = accounts
            .iter()
            .find(|account| account.name_any() == name)
            .and_then(|account| account.metadata.uid.clone());
        let running = known.get(&ObjectRef::new(&name).within(self.namespace));
        let uid = account.or_else(|| account_of_pickers(running.as_deref()?).map(str::to_owned));
        let pickers = deployments
            .iter_mut()
            .find(|deployment| deployment.metadata.name.as_ref() == Some(&name));
        if let (Some(pickers), Some(uid)) = (pickers, uid) {
            bind_pickers(pickers, uid);
        }
    }
}
