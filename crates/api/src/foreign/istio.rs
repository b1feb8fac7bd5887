//! Istio: `networking.istio.io/v1`.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Group of Istio's traffic rules.
pub const GROUP: &str = "networking.istio.io";
/// How the `controllerName` of each of Istio's gateway classes begins.
pub const CONTROLLERS: &str = "istio.io/";

/// How Istio speaks to a host.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "networking.istio.io",
    version = "v1",
    kind = "DestinationRule",
    plural = "destinationrules",
    namespaced,
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct DestinationRuleSpec {
    /// Service that it is about.
    pub host: String,
    /// How to speak to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_policy: Option<TrafficPolicy>,
}

/// How to speak to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficPolicy {
    /// What is different at single ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port_level_settings: Vec<PortTrafficPolicy>,
}

/// How to speak to a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortTrafficPolicy {
    /// Port of the Service.
    pub port: PortSelector,
    /// TLS towards it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTls>,
}

/// A port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortSelector {
    /// Its number.
    pub number: i32,
}

/// TLS towards a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientTls {
    /// SIMPLE for a picker with a certificate of its own.
    pub mode: String,
    /// Whether any certificate is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}
