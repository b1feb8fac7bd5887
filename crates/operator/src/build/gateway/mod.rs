//! What tells somebody's Gateway about the pool: a route, and the plug of the picker.
//!
//! Gateways that know the Gateway API Inference Extension read its InferencePool ([`gie_pool`]) behind a plain route
//! ([`route`]); Istio speaks TLS to a picker only where a rule says so ([`destination_rule`]). Envoy Gateway does not
//! know InferencePool and gets the picker as an external processor ([`envoy_gateway`]).
//!
//! All of them ask the picker through a Service of its own with an address of its own, which leads to ready pickers only:
//! Gateways have no health checks of theirs that notice a picker which starts or ends in time.

pub(super) mod destination_rule;
pub(super) mod envoy_gateway;
pub(super) mod gie_pool;
pub(super) mod route;

use crate::validated::Validated;

/// Name of the Service by which Gateways ask the picker.
pub(super) fn picker_service(validated: &Validated) -> String {
    format!("{}-ext-proc", validated.name)
}

/// Its name in the whole cluster.
pub(super) fn picker_host(validated: &Validated) -> String {
    format!(
        "{}.{}.svc.{}",
        picker_service(validated),
        validated.namespace,
        validated.cluster.domain
    )
}
