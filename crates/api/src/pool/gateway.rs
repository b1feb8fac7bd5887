//! The way in: routes of somebody's Gateway, an Envoy of the pool's own, and who may reach the pods.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{placement::Resources, schema};
use crate::foreign::gateway::{HttpRouteMatch, ParentReference};

/// How requests from outside reach the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// Gateways to which the pool's HTTPRoute attaches. Default: none, and no route.
    #[schemars(length(max = 8))]
    pub parent_refs: Vec<ParentReference>,
    /// Host names of the route. Default: those of the Gateway's listener.
    #[schemars(length(max = 16), inner(length(min = 1, max = 253)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub hostnames: Vec<String>,
    /// Requests that the route takes. Default: all of its hosts.
    #[schemars(length(max = 16))]
    pub matches: Vec<HttpRouteMatch>,
    /// How the Gateway is told to ask the picker: Auto (by the Gateway's class), InferencePool (a GIE InferencePool)
    /// or EnvoyGateway (its extension policies). Default Auto.
    pub plug: Plug,
    /// An Envoy of the pool's own, behind a Service. Default: none; {} makes one with its defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standalone: Option<Standalone>,
}

/// How a Gateway is told to ask the picker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Plug {
    /// By the Gateway's class.
    #[default]
    Auto,
    /// By a GIE InferencePool.
    InferencePool,
    /// By Envoy Gateway's policies.
    EnvoyGateway,
}

/// An Envoy of the pool's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Standalone {
    /// Envoy pods. Default 2.
    #[schemars(range(min = 1, max = 64))]
    pub replicas: i32,
    /// Image of Envoy. Its user must not be root, as in envoyproxy/envoy:distroless-v1.40.0. Default: the operator's own
    /// choice.
    #[schemars(length(max = 512))]
    pub image: String,
    /// What Envoy's container asks for and may use.
    pub resources: Resources,
    /// The Service in front of the pods.
    pub service: EnvoyService,
}

impl Default for Standalone {
    fn default() -> Self {
        Self {
            replicas: 2,
            image: String::new(),
            resources: Resources::default(),
            service: EnvoyService::default(),
        }
    }
}

/// The Service in front of the standalone Envoy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyService {
    /// ClusterIP, NodePort or LoadBalancer. Default ClusterIP.
    #[serde(rename = "type")]
    pub kind: ServiceType,
    /// Port for requests. Default 80.
    #[schemars(range(min = 1, max = 65_535))]
    pub port: i32,
    /// Annotations of the Service, such as those of a cloud's load balancer.
    #[schemars(schema_with = "schema::labels")]
    pub annotations: BTreeMap<String, String>,
}

impl Default for EnvoyService {
    fn default() -> Self {
        Self {
            kind: ServiceType::ClusterIp,
            port: 80,
            annotations: BTreeMap::new(),
        }
    }
}

/// How a Service is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Inside of the cluster.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// On a port of each node.
    NodePort,
    /// By a load balancer of the cloud.
    LoadBalancer,
}

impl ServiceType {
    /// As a Service wants it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// Who may reach the pool's pods, where the cluster enforces network policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicySpec {
    /// Whether network policies are made. Default true.
    pub enabled: bool,
    /// Peers that may send requests to engines and pickers: the pods of your Gateway. Default: known for the
    /// standalone Envoy; else the engines' port is open and a condition says so.
    #[schemars(schema_with = "schema::list::<NetworkPolicyPeer, 16>")]
    pub gateway_from: Vec<NetworkPolicyPeer>,
    /// Peers that may read metrics of engines, pickers and Envoy. Default: none.
    #[schemars(schema_with = "schema::list::<NetworkPolicyPeer, 16>")]
    pub monitoring_from: Vec<NetworkPolicyPeer>,
}

impl Default for NetworkPolicySpec {
    fn default() -> Self {
        Self {
            enabled: true,
            gateway_from: Vec::new(),
            monitoring_from: Vec::new(),
        }
    }
}

/// Objects of the Prometheus operator, made when its definitions are installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Monitoring {
    /// Whether a PodMonitor for engines, pickers and Envoy is made. Default false.
    pub pod_monitor: bool,
    /// Whether a PrometheusRule with alerts is made. Default false.
    pub alerts: bool,
}

/// Rules of `spec.gateway`, from the specification down.
pub(super) fn gateway_rules() -> [Rule; 2] {
    [
        Rule::new("self.gateway.parentRefs.size() > 0 || (self.gateway.hostnames.size() == 0 && self.gateway.matches.size() == 0)")
            .message("hostnames and matches belong to the route, which needs a Gateway; add parentRefs or remove them")
            .field_path(".gateway"),
        Rule::new("self.gateway.hostnames.all(h, h.matches('^([*][.])?[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$'))")
            .message("holds something that is no host name; write lower-case DNS names such as llm.example.com or *.example.com")
            .field_path(".gateway.hostnames"),
    ]
}
