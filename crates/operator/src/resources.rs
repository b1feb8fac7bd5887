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
    envoy_gateway::{Backend, BackendTrafficPolicy, EnvoyExtensionPolicy, HTTPRouteFilter},
    gateway::HTTPRoute,
    gie,
    istio::DestinationRule,
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
    /// How Istio speaks to the picker.
    pub destination_rules: Vec<DestinationRule>,
    /// What Envoy Gateway answers where no picker decided.
    pub route_filters: Vec<HTTPRouteFilter>,
    /// The picker, as Envoy Gateway names it.
    pub backends: Vec<Backend>,
    /// The route of somebody's Gateway.
    pub routes: Vec<HTTPRoute>,
    /// The picker in Envoy Gateway's route.
    pub extension_policies: Vec<EnvoyExtensionPolicy>,
    /// How Envoy Gateway's route finds the engine that the picker named.
    pub traffic_policies: Vec<BackendTrafficPolicy>,
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
            destination_rules: Vec::new(),
            route_filters: Vec::new(),
            backends: Vec::new(),
            routes: Vec::new(),
            extension_policies: Vec::new(),
            traffic_policies: Vec::new(),
            pod_monitors: Vec::new(),
            prometheus_rules: Vec::new(),
            stage: PhantomData,
        }
    }
}
