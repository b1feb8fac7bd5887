//! Everything that a pool owns, by kind, and whether the API server has it yet.

use std::marker::PhantomData;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::RoleBinding,
};
use lmetric_api::foreign::{
    gateway::HTTPRoute,
    gie,
    prometheus::{PodMonitor, PrometheusRule},
};

/// Built, not applied yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {}

/// The API server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {}

/// What a pool owns, in the order in which it is applied. One field for each kind; whoever handles all kinds
/// destructures without `..`, so that a new kind that is forgotten somewhere does not compile.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources<Stage> {
    /// Of engines (unless the pool names one) and pickers.
    pub service_accounts: Vec<ServiceAccount>,
    /// Of pickers.
    pub role_bindings: Vec<RoleBinding>,
    /// Of pickers and the standalone Envoy.
    pub config_maps: Vec<ConfigMap>,
    /// The model cache.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Of engines, pickers (both headless) and the standalone Envoy.
    pub services: Vec<Service>,
    /// Of all three components.
    pub network_policies: Vec<NetworkPolicy>,
    /// Of all three components. The engines' own is named by [`lmetric_api::pool::Component::object_name`].
    pub deployments: Vec<Deployment>,
    /// Of all three components.
    pub disruption_budgets: Vec<PodDisruptionBudget>,
    /// GIE's object of the same name, for gateways.
    pub gie_pools: Vec<gie::InferencePool>,
    /// The route of somebody's Gateway.
    pub routes: Vec<HTTPRoute>,
    /// When asked for.
    pub pod_monitors: Vec<PodMonitor>,
    /// When asked for.
    pub prometheus_rules: Vec<PrometheusRule>,
    pub(crate) stage: PhantomData<fn() -> Stage>,
}

impl Default for Resources<Prepared> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<Stage> Resources<Stage> {
    /// Nothing of any kind. Outside of this crate only [`Prepared`] ones can be made.
    pub(crate) fn empty() -> Self {
        Self {
            service_accounts: Vec::new(),
            role_bindings: Vec::new(),
            config_maps: Vec::new(),
            claims: Vec::new(),
            services: Vec::new(),
            network_policies: Vec::new(),
            deployments: Vec::new(),
            disruption_budgets: Vec::new(),
            gie_pools: Vec::new(),
            routes: Vec::new(),
            pod_monitors: Vec::new(),
            prometheus_rules: Vec::new(),
            stage: PhantomData,
        }
    }
}
