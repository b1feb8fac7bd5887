//! Gateway API Inference Extension: `inference.networking.k8s.io/v1`.
//!
//! Its kind is called InferencePool as well; scripts write `inferencepools.inference.networking.k8s.io` for it.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::gateway::RouteParentStatus;

/// Group of the Inference Extension.
pub const GROUP: &str = "inference.networking.k8s.io";

/// Pods that serve a model, and who picks among them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "inference.networking.k8s.io",
    version = "v1",
    kind = "InferencePool",
    plural = "inferencepools",
    namespaced,
    status = "InferencePoolStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct InferencePoolSpec {
    /// Which pods.
    pub selector: Selector,
    /// Their ports, at most 8; each is an endpoint.
    pub target_ports: Vec<TargetPort>,
    /// `http` or `kubernetes.io/h2c`; http if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// Who picks.
    pub endpoint_picker_ref: EndpointPickerRef,
}

/// A selector by labels alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels that a pod must have.
    pub match_labels: BTreeMap<String, String>,
}

/// A port of the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetPort {
    /// Its number.
    pub number: i32,
}

/// The picker of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPickerRef {
    /// API group; the core group if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Kind; Service if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name.
    pub name: String,
    /// Port of its ext-proc service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<TargetPort>,
    /// FailClose or FailOpen; FailClose if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_mode: Option<String>,
}

/// What Gateways say about a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InferencePoolStatus {
    /// One entry for each Gateway.
    pub parents: Vec<RouteParentStatus>,
}
