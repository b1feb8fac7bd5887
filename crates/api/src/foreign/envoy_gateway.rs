//! Envoy Gateway's policies: `gateway.envoyproxy.io/v1alpha1`.
//!
//! Most of what is written here nests deeply and is written once, so those parts are JSON as Envoy Gateway writes it;
//! what is read is typed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelectorRequirement};
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gateway::RouteParentStatus;

/// Group of Envoy Gateway.
pub const GROUP: &str = "gateway.envoyproxy.io";
/// How the `controllerName` of Envoy Gateway's classes begins; installations may choose the rest.
pub const CONTROLLERS: &str = "gateway.envoyproxy.io/";

/// Puts a processor into a route.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "EnvoyExtensionPolicy",
    plural = "envoyextensionpolicies",
    namespaced,
    status = "PolicyStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyExtensionPolicySpec {
    /// What it applies to.
    pub target_refs: Vec<TargetRef>,
    /// Processors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ext_proc: Vec<ExtProc>,
}

/// A processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtProc {
    /// Where it is.
    pub backend_refs: Vec<super::gateway::BackendRef>,
    /// Limits, breakers and retries of the connection to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_settings: Option<Value>,
    /// Time for each of its answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_timeout: Option<String>,
    /// Whether requests go on without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_open: Option<bool>,
    /// Which parts of request and response it sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processing_mode: Option<Value>,
    /// Metadata that it reads and writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// How Envoy speaks to the backends of a route.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "BackendTrafficPolicy",
    plural = "backendtrafficpolicies",
    namespaced,
    status = "PolicyStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTrafficPolicySpec {
    /// What it applies to.
    pub target_refs: Vec<TargetRef>,
    /// Load balancer, and in it the header that names the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<Value>,
    /// Limits of connections and requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<Value>,
    /// Limits of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Value>,
    /// When a connection whose other end says nothing is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_keepalive: Option<Value>,
}

/// A backend outside of Services.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "Backend",
    plural = "backends",
    namespaced,
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendSpec {
    /// Its endpoints.
    pub endpoints: Vec<BackendEndpoint>,
    /// TLS towards it; plaintext if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<BackendTls>,
}

/// An endpoint of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendEndpoint {
    /// A DNS name and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<Fqdn>,
}

/// A DNS name and port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Fqdn {
    /// The name.
    pub hostname: String,
    /// The port.
    pub port: i32,
}

/// TLS towards a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTls {
    /// Whether any certificate is taken.
    pub insecure_skip_verify: bool,
}

/// A filter of routes, such as a direct response.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "HTTPRouteFilter",
    plural = "httproutefilters",
    namespaced,
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteFilterSpec {
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct_response: Option<DirectResponse>,
}

/// An answer that Envoy gives itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DirectResponse {
    /// Its Content-Type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Its status.
    pub status_code: i32,
    /// Its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<DirectBody>,
}

/// Body of a direct response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DirectBody {
    /// Inline, for the text below.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
}

/// How Envoy speaks to clients of a Gateway. It belongs to the Gateway's owner and is only read.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "ClientTrafficPolicy",
    plural = "clienttrafficpolicies",
    namespaced,
    status = "PolicyStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientTrafficPolicySpec {
    /// What it applies to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target_refs: Vec<TargetRef>,
    /// The same for one target, in the API's older form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The same by labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub target_selectors: Vec<TargetSelector>,
    /// What it does: everything else, as its owner wrote it.
    #[serde(flatten)]
    pub settings: serde_json::Map<String, Value>,
}

/// Objects that a policy applies to, by their labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetSelector {
    /// Kind.
    pub kind: String,
    /// Labels that they have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// What else is asked of their labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
    /// API group and namespaces.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

/// What a policy applies to, in its own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Listener of a Gateway; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
}

/// What Envoy Gateway says about a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyStatus {
    /// One entry for each Gateway.
    pub ancestors: Vec<PolicyAncestorStatus>,
}

/// What Envoy Gateway says about a policy at one Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyAncestorStatus {
    /// Which Gateway.
    pub ancestor_ref: super::gateway::ParentReference,
    /// Which controller.
    pub controller_name: String,
    /// Accepted among others.
    pub conditions: Vec<Condition>,
}

impl From<PolicyAncestorStatus> for RouteParentStatus {
    fn from(status: PolicyAncestorStatus) -> Self {
        let PolicyAncestorStatus {
            ancestor_ref,
            controller_name,
            conditions,
        } = status;
        Self {
            parent_ref: ancestor_ref,
            controller_name,
            conditions,
        }
    }
}
