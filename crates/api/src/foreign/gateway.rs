//! Gateway API: `gateway.networking.k8s.io/v1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Group of Gateway API.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// A class of Gateways, made by whoever runs their controller.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "GatewayClass",
    plural = "gatewayclasses",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    /// Which controller answers for the class; `plug: Auto` decides by it.
    pub controller_name: String,
}

/// A Gateway.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "Gateway",
    plural = "gateways",
    namespaced,
    status = "GatewayStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    /// Name of its class.
    pub gateway_class_name: String,
    /// Its listeners.
    pub listeners: Vec<Listener>,
}

/// A listener of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Listener {
    /// Name, which a route's `sectionName` refers to.
    pub name: String,
    /// Host name that it takes; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Port.
    pub port: i32,
    /// HTTP or HTTPS among others.
    pub protocol: String,
}

/// What its controller says about a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayStatus {
    /// Addresses at which it is reached.
    pub addresses: Vec<GatewayAddress>,
    /// Accepted and Programmed among others.
    pub conditions: Vec<Condition>,
}

/// An address of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayAddress {
    /// IPAddress or Hostname.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The address.
    pub value: String,
}

/// A route of HTTP requests.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "HTTPRoute",
    plural = "httproutes",
    namespaced,
    status = "RouteStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteSpec {
    /// Gateways that it attaches to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ParentReference>,
    /// Hosts that it takes; all of the listener's if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    /// Its rules; the most specific match wins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<HttpRouteRule>,
}

/// A rule of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteRule {
    /// Requests that it takes, any of them; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<HttpRouteMatch>,
    /// Filters, as the API writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Value>,
    /// Where requests go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backend_refs: Vec<BackendRef>,
    /// Limits of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<HttpRouteTimeouts>,
}

/// Limits of a rule's time, in Gateway API's form of durations: `0s` is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteTimeouts {
    /// Of a whole request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Of one try at a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<String>,
}

/// Where a rule or policy sends to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendRef {
    /// API group; the core group if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Kind; Service if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name.
    pub name: String,
    /// Port, for a Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Share among the rule's backends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// What a route's Gateways say about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteStatus {
    /// One entry for each Gateway.
    pub parents: Vec<RouteParentStatus>,
}

/// What one Gateway says about a route or policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteParentStatus {
    /// Which Gateway.
    pub parent_ref: ParentReference,
    /// Which controller.
    pub controller_name: String,
    /// Accepted and ResolvedRefs among others.
    pub conditions: Vec<Condition>,
}

/// A Gateway that a route attaches to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// API group of the parent. Default gateway.networking.k8s.io.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group: Option<String>,
    /// Kind of the parent. Default Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// Namespace of the parent. Default: the pool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the parent.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Listener of the Gateway. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
    /// Port of the Gateway's listeners. Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: Option<i32>,
}

/// Requests that a rule takes: all that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteMatch {
    /// Path of the request. Default: every path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<HttpPathMatch>,
    /// Headers of the request, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub headers: Vec<HttpValueMatch>,
    /// Query parameters of the request, all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub query_params: Vec<HttpValueMatch>,
    /// Method of the request, such as POST. Default: every method.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub method: Option<String>,
}

/// A match of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new("self.type == 'RegularExpression' || self.value.startsWith('/')")
        .message("a path has to begin with /, such as /v1")
        .field_path(".value"),
]))]
pub struct HttpPathMatch {
    /// Exact, PathPrefix or RegularExpression. Default PathPrefix.
    #[serde(rename = "type")]
    pub kind: PathMatchType,
    /// The path. Default /.
    #[schemars(length(min = 1, max = 1024))]
    pub value: String,
}

impl Default for HttpPathMatch {
    fn default() -> Self {
        Self {
            kind: PathMatchType::PathPrefix,
            value: "/".to_owned(),
        }
    }
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PathMatchType {
    /// The whole path.
    Exact,
    /// The path's first elements.
    #[default]
    PathPrefix,
    /// As the Gateway's own dialect has it.
    RegularExpression,
}

/// A match of a header or of a query parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpValueMatch {
    /// Exact or RegularExpression. Default Exact.
    #[serde(rename = "type", default)]
    pub kind: ValueMatchType,
    /// Name of the header or parameter.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Its value.
    #[schemars(length(min = 1, max = 4096))]
    pub value: String,
}

/// How a value is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ValueMatchType {
    /// The whole value.
    #[default]
    Exact,
    /// As the Gateway's own dialect has it.
    RegularExpression,
}
