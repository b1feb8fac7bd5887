//! The three probes. An engine listens when its model is loaded, not before.

use k8s_openapi::api::core::v1::{HTTPGetAction, Probe};
use lmetric_api::pool::{InferencePoolSpec, IntOrString, ProbeOverride};

/// A wedged engine has nothing to finish; without a grace of its own, a restart would wait for the pod's.
const LIVENESS_GRACE_SECONDS: i64 = 10;

/// Until the model is loaded.
pub(super) fn startup(spec: &InferencePoolSpec) -> Probe {
    let period = 5;
    let tries = (spec.lifecycle.startup_timeout.seconds_up() + i64::from(period) - 1) / i64::from(period);
    let failures = i32::try_from(tries).unwrap_or(i32::MAX).max(1);
    probe(spec, &spec.probes.startup, period, 5, failures)
}

/// Whether requests may come.
pub(super) fn readiness(spec: &InferencePoolSpec) -> Probe {
    probe(spec, &spec.probes.readiness, 5, 5, 6)
}

/// Patient, since a saturated engine answers late.
pub(super) fn liveness(spec: &InferencePoolSpec) -> Probe {
    Probe {
        termination_grace_period_seconds: Some(LIVENESS_GRACE_SECONDS),
        ..probe(spec, &spec.probes.liveness, 10, 15, 10)
    }
}

fn probe(
    spec: &InferencePoolSpec,
    changes: &ProbeOverride,
    period: i32,
    timeout: i32,
    failures: i32,
) -> Probe {
    let ProbeOverride {
        path,
        initial_delay_seconds,
        period_seconds,
        timeout_seconds,
        failure_threshold,
    } = changes;
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(if path.is_empty() {
                "/health".to_owned()
            } else {
                path.clone()
            }),
            port: IntOrString::Int(spec.engine.port),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: *initial_delay_seconds,
        period_seconds: Some(period_seconds.unwrap_or(period)),
        timeout_seconds: Some(timeout_seconds.unwrap_or(timeout)),
        failure_threshold: Some(failure_threshold.unwrap_or(failures)),
        success_threshold: Some(1),
        ..Probe::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn three(changes: Value) -> Vec<(i32, i32, i32)> {
        let validated = testing::pool(changes);
        let spec = &validated.pool.spec;
        [startup(spec), readiness(spec), liveness(spec)]
            .into_iter()
            .map(|probe| {
                (
                    probe.period_seconds.unwrap(),
                    probe.timeout_seconds.unwrap(),
                    probe.failure_threshold.unwrap(),
                )
            })
            .collect()
    }

    #[test]
    fn a_loading_engine_has_the_startup_timeout_and_a_saturated_one_patience() {
        assert_eq!(three(json!({})), [(5, 5, 360), (5, 5, 6), (10, 15, 10)]);
        let short = json!({"lifecycle": {"startupTimeout": "12s"}});
        assert_eq!(three(short)[0], (5, 5, 3));
    }

    #[test]
    fn a_probe_changes_where_the_pool_says_so() {
        let validated = testing::pool(json!({
            "engine": {"port": 9000},
            "probes": {"liveness": {"path": "/ready", "periodSeconds": 30, "initialDelaySeconds": 3, "failureThreshold": 2}},
        }));
        assert_eq!(
            serde_json::to_value(liveness(&validated.pool.spec)).unwrap(),
            json!({
                "httpGet": {"path": "/ready", "port": 9000, "scheme": "HTTP"},
                "initialDelaySeconds": 3, "periodSeconds": 30, "timeoutSeconds": 15, "failureThreshold": 2,
                "successThreshold": 1, "terminationGracePeriodSeconds": 10,
            })
        );
    }
}
