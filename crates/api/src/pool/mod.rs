//! `InferencePool` of `lmetric.io/v1alpha1`: the types, their schema with its rules, and what a schema cannot say.
//!
//! Defaults are in the schema, so an object that the API server returned is complete; the same defaults are in the types, so
//! that a file reads alike. Rules live beside the fields as CEL, with messages that tell a remedy; the API server
//! enforces them. [`validate`] checks what is left.
//!
//! Scripts and documents write `inferencepools.lmetric.io` or `lmpool`: GIE has a kind of the same name.

mod cache;
pub mod condition;
mod crd;
mod duration;
mod engine;
pub mod flags;
mod gateway;
mod lifecycle;
mod loose;
mod model;
pub mod names;
mod placement;
pub mod refused;
mod routing;
mod schema;
mod spec;
mod status;
mod validate;

pub use cache::{AccessMode, Cache, CacheType};
pub use condition::reason;
pub use crd::{definition, definition_yaml};
pub use duration::{Duration, NotADuration};
pub use engine::{Engine, KvEvents, PullPolicy, SecretName};
pub use gateway::{EnvoyService, Gateway, Monitoring, NetworkPolicySpec, Plug, ServiceType, Standalone};
pub use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString};
pub use lifecycle::{Disruption, Lifecycle, ProbeOverride, Probes, Rollout, RolloutStrategy};
pub use loose::{Loose, Unreadable};
pub use model::{Adapter, Dtype, Model, NotASource, SecretKey, Source};
pub use names::Component;
pub use placement::{Accelerator, AcceleratorClass, EngineResources, Parallelism, Placement, Resources};
pub use routing::{FailureMode, Picker, PickerTls, Routing, RoutingPolicy};
pub use spec::{InferencePool, InferencePoolSpec};
pub use status::InferencePoolStatus;
pub use validate::{Invalid, validate};
