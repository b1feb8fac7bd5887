//! ServiceAccounts: the engines' has no rights, the pickers' is bound to the chart's role.

use k8s_openapi::api::core::v1::ServiceAccount;
use lmetric_api::pool::Component;

use super::meta;
use crate::validated::Validated;

/// Name of the account that engines run under.
pub(super) fn of_engines(validated: &Validated) -> String {
    match validated.pool.spec.service_account_name.as_str() {
        "" => Component::Engine.object_name(&validated.name),
        named => named.to_owned(),
    }
}

/// The accounts that the pool brings along.
pub(super) fn build(validated: &Validated) -> Vec<ServiceAccount> {
    let account = |component, automount| ServiceAccount {
        metadata: meta::of_component(validated, component),
        automount_service_account_token: Some(automount),
        ..ServiceAccount::default()
    };
    let mut accounts = vec![account(Component::Picker, true)];
    if validated.pool.spec.service_account_name.is_empty() {
        accounts.push(account(Component::Engine, false));
    }
    accounts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn engines_get_an_account_without_token_unless_the_pool_names_one() {
        let names = |spec| {
            build(&testing::pool(spec))
                .into_iter()
                .map(|account| {
                    (
                        account.metadata.name.unwrap(),
                        account.automount_service_account_token,
                    )
                })
                .collect::<Vec<_>>()
        };
        let picker = ("qwen-picker".to_owned(), Some(true));
        assert_eq!(
            names(json!({})),
            [picker.clone(), ("qwen-engine".to_owned(), Some(false))]
        );
        assert_eq!(names(json!({"serviceAccountName": "s3-reader"})), [picker]);
    }
}
