//! The Prometheus operator: `monitoring.coreos.com/v1`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Group of the Prometheus operator.
pub const GROUP: &str = "monitoring.coreos.com";

/// Pods whose metrics are collected.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "monitoring.coreos.com",
    version = "v1",
    kind = "PodMonitor",
    plural = "podmonitors",
    namespaced,
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct PodMonitorSpec {
    /// Which pods.
    pub selector: LabelSelector,
    /// Labels of pods that become labels of their series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_target_labels: Vec<String>,
    /// Where the metrics are.
    pub pod_metrics_endpoints: Vec<PodMetricsEndpoint>,
}

/// Where a pod's metrics are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodMetricsEndpoint {
    /// Name of the container's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Number of the container's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_number: Option<i32>,
    /// Path; `/metrics` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether a label of the page wins over one of the target with the same name; else it becomes `exported_NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub honor_labels: Option<bool>,
    /// Time between two collections, such as `15s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
}

/// Alerts.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "monitoring.coreos.com",
    version = "v1",
    kind = "PrometheusRule",
    plural = "prometheusrules",
    namespaced,
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct PrometheusRuleSpec {
    /// Groups of rules.
    pub groups: Vec<RuleGroup>,
}

/// Rules that are evaluated together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleGroup {
    /// Name, unique in its object.
    pub name: String,
    /// The rules.
    pub rules: Vec<AlertRule>,
}

/// An alert.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AlertRule {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
    /// Expression in PromQL.
    pub expr: IntOrString,
    /// How long the expression has to hold, such as `5m`.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub for_: Option<String>,
    /// Labels of the alert.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Text of the alert.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Default for AlertRule {
    fn default() -> Self {
        Self {
            alert: None,
            expr: IntOrString::String(String::new()),
            for_: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}
