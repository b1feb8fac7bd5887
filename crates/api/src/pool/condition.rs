//! The words of a pool's status. Conditions and reasons are part of the API: people alert on them.

/// Types of conditions.
#[expect(clippy::module_inception, reason = "the reasons stand beside them")]
pub mod condition {
    /// Requests to the pool's address are served: an engine, a picker and, where asked for, the way in are ready.
    pub const READY: &str = "Ready";
    /// At least `replicas − rollout.maxUnavailable` engines are available.
    pub const AVAILABLE: &str = "Available";
    /// A rollout or a change of replicas is under way, and moving.
    pub const PROGRESSING: &str = "Progressing";
    /// Something needs a person; what worked before goes on serving.
    pub const DEGRADED: &str = "Degraded";
    /// At least one picker is ready.
    pub const PICKER_READY: &str = "PickerReady";
    /// The gateway accepts the route and the plug of its picker.
    pub const ROUTE_ACCEPTED: &str = "RouteAccepted";

    /// All of them, in the order in which the status lists them.
    pub const ALL: [&str; 6] = [
        READY,
        AVAILABLE,
        PROGRESSING,
        DEGRADED,
        PICKER_READY,
        ROUTE_ACCEPTED,
    ];
}

/// Reasons of conditions and Events.
pub mod reason {
    /// Nothing is wrong.
    pub const AS_EXPECTED: &str = "AsExpected";
    /// Requests are served.
    pub const SERVING: &str = "Serving";
    /// The new template or count is being rolled out.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// Every engine runs the current template.
    pub const COMPLETE: &str = "Complete";
    /// `rollout.paused` holds the rollout.
    pub const PAUSED: &str = "Paused";
    /// The engine's image cannot be pulled.
    pub const IMAGE_PULL: &str = "ImagePull";
    /// An engine ends again and again.
    pub const CRASH_LOOP: &str = "CrashLoop";
    /// An engine used more memory than it may.
    pub const OOM_KILLED: &str = "OOMKilled";
    /// Engines load their model; the message tells elapsed time and limit.
    pub const STARTING: &str = "Starting";
    /// An engine was not ready within `lifecycle.startupTimeout`.
    pub const START_TIMEOUT: &str = "StartTimeout";
    /// An engine runs and does not answer its probe.
    pub const NOT_READY: &str = "NotReady";
    /// The node of an engine is gone.
    pub const NODE_LOST: &str = "NodeLost";
    /// No node has enough free accelerators.
    pub const INSUFFICIENT_GPU: &str = "InsufficientGPU";
    /// An engine does not fit a node for another want than accelerators.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// A Secret that the pool names does not exist.
    pub const SECRET_MISSING: &str = "SecretMissing";
    /// The volume of the cache is not bound.
    pub const VOLUME_PENDING: &str = "VolumePending";
    /// A volume cannot be attached or mounted.
    pub const VOLUME_ATTACH: &str = "VolumeAttach";
    /// The API server lets no pod be made: quota, Pod Security or a webhook.
    pub const PODS_REJECTED: &str = "PodsRejected";
    /// An object of a name that the pool needs belongs to somebody else.
    pub const NAME_CONFLICT: &str = "NameConflict";
    /// The specification cannot be built; the message names field and remedy.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// The pool asks for an API that this cluster lacks.
    pub const OPTIONAL_API_MISSING: &str = "OptionalApiMissing";
    /// The Gateway lacks a policy that its owner has to apply; the message holds it.
    pub const GATEWAY_POLICY_MISSING: &str = "GatewayPolicyMissing";
    /// No picker is ready.
    pub const PICKER_DOWN: &str = "PickerDown";
    /// The standalone Envoy is not available.
    pub const ENVOY_DOWN: &str = "EnvoyDown";
    /// `replicas` is 0.
    pub const SCALED_TO_ZERO: &str = "ScaledToZero";
    /// No gateway is asked for.
    pub const NO_GATEWAY: &str = "NoGateway";
    /// The gateway has accepted the route.
    pub const ACCEPTED: &str = "Accepted";
    /// The gateway refuses the route or its plug; the message is its own.
    pub const NOT_ACCEPTED: &str = "NotAccepted";
    /// The gateway has not answered yet, or cannot be looked at.
    pub const UNKNOWN: &str = "Unknown";
    /// The API server refused an object; the message is its own.
    pub const APPLY_REFUSED: &str = "ApplyRefused";
}
