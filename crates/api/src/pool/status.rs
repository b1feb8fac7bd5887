//! What the operator says about a pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What the operator last saw. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InferencePoolStatus {
    /// Generation of the specification that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Engines that exist and are not being drained.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Engines that are ready.
    #[schemars(range(min = 0))]
    pub ready_replicas: i32,
    /// Engines of the current template.
    #[schemars(range(min = 0))]
    pub updated_replicas: i32,
    /// Engines that have been ready for rollout.minReadySeconds.
    #[schemars(range(min = 0))]
    pub available_replicas: i32,
    /// Engines that finish their requests and then end.
    #[schemars(range(min = 0))]
    pub draining_replicas: i32,
    /// Selector of the engines' pods, for autoscalers.
    #[schemars(length(max = 512))]
    pub selector: String,
    /// Accelerators that the engines hold.
    #[schemars(range(min = 0))]
    pub gpus: i32,
    /// Address for requests. Absent without a gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub url: Option<String>,
    /// Version of the builder that made the engines' template; it moves only when the specification changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub template_revision: Option<i32>,
    /// Image of the drain tool in the engines' template; it moves only when the specification changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub tool_image: Option<String>,
    /// Ready, Available, Progressing, Degraded, PickerReady and RouteAccepted; each message says what a person must do.
    #[schemars(schema_with = "schema::conditions")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl InferencePoolStatus {
    /// The condition of that type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == kind)
    }
}
