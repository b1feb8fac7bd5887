//! Pure builders: what a validated pool owns. One file for each kind of object, or for the objects of one component.
//!
//! They look nothing up, ask no clock, and give equal objects for equal pools; so an object that did not change is not
//! written.

mod claim;
mod disruption_budget;
mod engine;
mod envoy;
mod gateway;
mod meta;
mod network_policy;
mod picker;
mod pod;
mod pod_monitor;
pub mod ports;
mod prometheus_rule;
mod role_binding;
mod service;
mod service_account;
#[cfg(test)]
pub(crate) mod testing;

pub use engine::TemplateRevision;
pub use network_policy::is_open;
pub use picker::config::KEY as PICKER_CONFIG_KEY;
pub(crate) use picker::{account_of as account_of_pickers, bind as bind_pickers};

use crate::{
    resources::{Prepared, Resources},
    validated::{Images, Validated, Versions},
};

/// The newest builder of the engines' template.
pub const TEMPLATE_REVISION: i32 = TemplateRevision::NEWEST.number();

/// Why a pool's objects cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The status names a builder that this operator does not know.
    #[error(
        "status.templateRevision is {0} and this operator builds up to {TEMPLATE_REVISION}; install an operator at least as new as the one that wrote it"
    )]
    UnknownRevision(i32),
    /// The overlay uses a name of the drain tool's own.
    #[error(
        "spec.podTemplate.spec.{0} holds lmetric-drain, which installs the drain tool; give yours another name"
    )]
    NameTaken(&'static str),
    /// GIE's InferencePool names at most eight ports.
    #[error(
        "spec.parallelism.data is {0} and a Gateway's InferencePool names at most 8 ports; lower it or use gateway.standalone"
    )]
    TooManyRanks(i32),
}

/// Everything that the pool owns.
pub fn build(
    validated: &Validated,
    images: &Images,
    versions: &Versions,
) -> Result<Resources<Prepared>, BuildError> {
    let way_in = validated.way_in;
    let mut resources = Resources::default();
    resources
        .service_accounts
        .extend(service_account::build(validated));
    resources.role_bindings.push(role_binding::build(validated));
    resources.config_maps.push(picker::config::build(validated));
    resources.claims.extend(claim::build(validated));
    resources.services.extend(service::build(validated));
    resources
        .network_policies
        .extend(network_policy::build(validated));
    resources.deployments.push(engine::build(validated, versions)?);
    resources.deployments.push(picker::build(validated, images));
    resources
        .disruption_budgets
        .extend(disruption_budget::build(validated));
    if let Some(standalone) = &validated.pool.spec.gateway.standalone {
        resources.config_maps.push(envoy::config_map(validated));
        resources
            .deployments
            .push(envoy::deployment(validated, standalone, images, versions));
    }
    if way_in.gie_pool {
        resources.gie_pools.push(gateway::gie_pool::build(validated)?);
    }
    if way_in.destination_rule {
        resources
            .destination_rules
            .push(gateway::destination_rule::build(validated));
    }
    if way_in.envoy_gateway {
        use gateway::envoy_gateway::{backend, extension_policy, filter, route, traffic_policy};
        resources.route_filters.extend(filter(validated));
        resources.backends.push(backend(validated));
        resources.routes.push(route(validated));
        resources.extension_policies.push(extension_policy(validated));
        resources.traffic_policies.push(traffic_policy(validated));
    }
    if way_in.route {
        resources.routes.push(gateway::route::build(validated));
    }
    if way_in.pod_monitor {
        resources.pod_monitors.extend(pod_monitor::build(validated));
    }
    if way_in.alerts {
        resources.prometheus_rules.push(prometheus_rule::build(validated));
    }
    Ok(resources)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validated::{Listeners, WayIn};

    #[test]
    fn a_pool_without_wishes_owns_engines_and_a_picker() {
        let built = build(
            &testing::pool(json!({})),
            &testing::images(),
            &testing::versions(),
        )
        .unwrap();
        assert_eq!(built.deployments.len(), 2);
        assert_eq!(built.services.len(), 2);
        assert_eq!(built.config_maps.len(), 1);
        assert_eq!(built.claims.len(), 0);
        assert_eq!(built.gie_pools.len() + built.routes.len(), 0);
        assert_eq!(built.pod_monitors.len() + built.prometheus_rules.len(), 0);
    }

    #[test]
    fn what_is_asked_for_is_built() {
        let mut validated = testing::pool(json!({"gateway": {"standalone": {}}, "cache": {"type": "PVC"}}));
        validated.way_in = WayIn {
            gie_pool: true,
            route: true,
            destination_rule: true,
            listeners: Listeners::Both,
            pod_monitor: true,
            alerts: true,
            ..WayIn::default()
        };
        let built = build(&validated, &testing::images(), &testing::versions()).unwrap();
        assert_eq!(built.deployments.len(), 3);
        assert_eq!(built.services.len(), 4);
        assert_eq!(built.config_maps.len(), 2);
        assert_eq!(built.network_policies.len(), 3);
        assert_eq!(built.claims.len(), 1);
        assert_eq!((built.gie_pools.len(), built.routes.len()), (1, 1));
        assert_eq!(built.destination_rules.len(), 1);
        assert_eq!((built.pod_monitors.len(), built.prometheus_rules.len()), (3, 1));
    }

    #[test]
    fn envoy_gateway_gets_its_five_objects_and_nothing_of_gies() {
        let mut validated = testing::pool(json!({"gateway": {"parentRefs": [{"name": "g"}]}}));
        validated.way_in.envoy_gateway = true;
        let built = build(&validated, &testing::images(), &testing::versions()).unwrap();
        assert_eq!(
            (
                built.routes.len(),
                built.route_filters.len(),
                built.backends.len()
            ),
            (1, 1, 1)
        );
        assert_eq!(
            (built.extension_policies.len(), built.traffic_policies.len()),
            (1, 1)
        );
        assert_eq!((built.gie_pools.len(), built.destination_rules.len()), (0, 0));
    }

    #[test]
    fn envoy_gateways_gateways_beside_others_get_a_route_each() {
        let mut validated = testing::pool(json!({"gateway": {"parentRefs": [{"name": "g"}, {"name": "h"}]}}));
        validated.way_in = WayIn {
            gie_pool: true,
            route: true,
            envoy_gateway: true,
            listeners: Listeners::Both,
            ..WayIn::default()
        };
        validated.parents.gie.remove(0);
        validated.parents.envoy_gateway.remove(1);
        let built = build(&validated, &testing::images(), &testing::versions()).unwrap();
        let routes: Vec<_> = built
            .routes
            .iter()
            .map(|route| {
                (
                    route.metadata.name.as_deref(),
                    route.spec.parent_refs[0].name.as_str(),
                )
            })
            .collect();
        assert_eq!(routes, [(Some("qwen"), "g"), (Some("qwen-inference"), "h")]);
        assert_eq!((built.gie_pools.len(), built.extension_policies.len()), (1, 1));
        // each asks the picker as it can
        assert_eq!(
            built.gie_pools[0]
                .spec
                .endpoint_picker_ref
                .port
                .as_ref()
                .unwrap()
                .number,
            9004
        );
        assert_eq!(
            built.backends[0].spec.endpoints[0].fqdn.as_ref().unwrap().port,
            9002
        );
    }

    #[test]
    fn equal_pools_give_equal_objects() {
        let once = || {
            build(
                &testing::pool(json!({})),
                &testing::images(),
                &testing::versions(),
            )
            .unwrap()
        };
        assert_eq!(once(), once());
    }
}
