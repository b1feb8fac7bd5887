//! PodMonitors, one for each component.

use lmetric_api::{
    foreign::prometheus::{PodMetricsEndpoint, PodMonitor, PodMonitorSpec},
    pool::{Component, names::label},
};

use super::{meta, ports};
use crate::validated::Validated;

const INTERVAL: &str = "15s";

/// The pool's PodMonitors.
pub(super) fn build(validated: &Validated) -> Vec<PodMonitor> {
    let spec = &validated.pool.spec;
    let engine_ports = ports::http(spec)
        .each()
        .map(|(port, _)| endpoint(port, "/metrics"))
        .collect();
    let mut monitors = vec![
        monitor(validated, Component::Engine, engine_ports),
        monitor(
            validated,
            Component::Picker,
            // `endpoint` of their page is the engine that a series is about, not the port that it was read from; an
            // engine's page has no label of a target, and could only pass for another with this
            vec![PodMetricsEndpoint {
                honor_labels: Some(true),
                ..endpoint("admin".to_owned(), "/metrics")
            }],
        ),
    ];
    if spec.gateway.standalone.is_some() {
        let status = endpoint("status".to_owned(), "/stats/prometheus");
        monitors.push(monitor(validated, Component::Envoy, vec![status]));
    }
    monitors
}

fn monitor(validated: &Validated, component: Component, endpoints: Vec<PodMetricsEndpoint>) -> PodMonitor {
    PodMonitor {
        metadata: meta::of_component(validated, component),
        spec: PodMonitorSpec {
            selector: meta::selector(validated, component),
            pod_target_labels: vec![label::POOL.to_owned(), label::COMPONENT.to_owned()],
            pod_metrics_endpoints: endpoints,
        },
    }
}

fn endpoint(port: String, path: &str) -> PodMetricsEndpoint {
    PodMetricsEndpoint {
        port: Some(port),
        path: Some(path.to_owned()),
        interval: Some(INTERVAL.to_owned()),
        ..PodMetricsEndpoint::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn metrics_are_read_where_each_component_serves_them() {
        let validated = testing::pool(json!({"parallelism": {"data": 2}, "gateway": {"standalone": {}}}));
        let found: Vec<_> = build(&validated)
            .into_iter()
            .map(|monitor| {
                let at: Vec<_> = monitor
                    .spec
                    .pod_metrics_endpoints
                    .into_iter()
                    .map(|endpoint| endpoint.port.unwrap() + &endpoint.path.unwrap())
                    .collect();
                (monitor.metadata.name.unwrap(), at.join(" "))
            })
            .collect();
        let expected = [
            ("qwen-engine", "http/metrics http-1/metrics"),
            ("qwen-picker", "admin/metrics"),
            ("qwen-envoy", "status/stats/prometheus"),
        ];
        assert_eq!(found, expected.map(|(name, at)| (name.to_owned(), at.to_owned())));
    }

    #[test]
    fn only_pickers_name_their_engines_themselves() {
        let honoured = |component: &str| {
            build(&testing::pool(json!({"gateway": {"standalone": {}}})))
                .into_iter()
                .find(|monitor| monitor.metadata.name.as_deref() == Some(component))
                .unwrap()
                .spec
                .pod_metrics_endpoints[0]
                .honor_labels
        };
        assert_eq!(honoured("qwen-picker"), Some(true));
        assert_eq!(honoured("qwen-engine"), None);
        assert_eq!(honoured("qwen-envoy"), None);
    }
}
