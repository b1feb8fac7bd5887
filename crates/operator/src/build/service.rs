//! Services: engines and pickers are found by the addresses of their pods, Envoy by one of its own.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use lmetric_api::pool::{Component, IntOrString, Standalone};

use super::{gateway, meta, ports};
use crate::validated::Validated;

/// All Services of the pool.
pub(super) fn build(validated: &Validated) -> Vec<Service> {
    let mut services = vec![engines(validated), pickers(validated)];
    if let Some(standalone) = &validated.pool.spec.gateway.standalone {
        services.push(envoy(validated, standalone));
    }
    if validated.way_in.gie_pool || validated.way_in.envoy_gateway {
        services.push(for_gateways(validated));
    }
    services
}

/// Ready engines, for requests that no picker decides and for Envoy Gateway's route.
fn engines(validated: &Validated) -> Service {
    let ports = ports::http(&validated.pool.spec)
        .each()
        .map(|(name, port)| service_port(&name, port, Some("http")))
        .collect();
    headless(validated, Component::Engine, ports, false)
}

/// Every picker, ready or not: an engine that ends must tell all of them, and Envoy knows a new one's address
/// before it is ready, so that none is missing when the old one goes. Envoy asks each for its health itself.
fn pickers(validated: &Validated) -> Service {
    let mut ports = ext_proc(validated);
    ports.push(service_port("health", ports::HEALTH, Some("kubernetes.io/h2c")));
    ports.push(service_port("admin", ports::ADMIN, Some("http")));
    headless(validated, Component::Picker, ports, true)
}

/// Where the picker is asked, one port for each way.
fn ext_proc(validated: &Validated) -> Vec<ServicePort> {
    ports::ext_proc(validated.way_in.listeners)
        .map(|(name, port)| {
            let protocol = if port == ports::EXT_PROC_TLS {
                "http2"
            } else {
                "kubernetes.io/h2c"
            };
            service_port(name, port, Some(protocol))
        })
        .collect()
}

/// Ready pickers, for somebody's Gateway.
fn for_gateways(validated: &Validated) -> Service {
    let labels = meta::labels(validated, Component::Picker);
    Service {
        metadata: meta::named(validated, gateway::picker_service(validated), labels),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(meta::selector_labels(validated, Component::Picker)),
            ports: Some(ext_proc(validated)),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn envoy(validated: &Validated, standalone: &Standalone) -> Service {
    let service = &standalone.service;
    let mut metadata = meta::of_component(validated, Component::Envoy);
    metadata.annotations = Some(service.annotations.clone()).filter(|annotations| !annotations.is_empty());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(service.kind.as_str().to_owned()),
            selector: Some(meta::selector_labels(validated, Component::Envoy)),
            ports: Some(vec![ServicePort {
                target_port: Some(IntOrString::String("proxy".to_owned())),
                ..service_port("http", service.port, Some("http"))
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn headless(
    validated: &Validated,
    component: Component,
    ports: Vec<ServicePort>,
    not_ready: bool,
) -> Service {
    Service {
        metadata: meta::of_component(validated, component),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(not_ready),
            selector: Some(meta::selector_labels(validated, component)),
            ports: Some(ports),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn service_port(name: &str, port: i32, app_protocol: Option<&str>) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        app_protocol: app_protocol.map(str::to_owned),
        ..ServicePort::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{build::testing, validated::Listeners};

    #[test]
    fn engines_and_pickers_are_headless_and_only_pickers_are_listed_before_they_are_ready() {
        let built = serde_json::to_value(build(&testing::pool(json!({"parallelism": {"data": 2}})))).unwrap();
        let brief: Vec<_> = built
            .as_array()
            .unwrap()
            .iter()
            .map(|service| {
                let spec = &service["spec"];
                let ports: Vec<_> = spec["ports"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|port| format!("{}={}", port["name"].as_str().unwrap(), port["port"]))
                    .collect();
                json!([
                    service["metadata"]["name"],
                    spec["clusterIP"],
                    spec["publishNotReadyAddresses"],
                    ports
                ])
            })
            .collect();
        assert_eq!(
            json!(brief),
            json!([
                ["qwen-engine", "None", false, ["http=8000", "http-1=8001"]],
                [
                    "qwen-picker",
                    "None",
                    true,
                    ["ext-proc=9002", "health=9003", "admin=9090"]
                ],
            ])
        );
    }

    #[test]
    fn pickers_list_a_port_for_each_way_they_are_asked() {
        let ports = |listeners| {
            let mut validated = testing::pool(json!({}));
            validated.way_in.listeners = listeners;
            let built = serde_json::to_value(pickers(&validated).spec.unwrap().ports).unwrap();
            let brief = |port: &serde_json::Value| {
                format!("{}/{}", port["port"], port["appProtocol"].as_str().unwrap())
            };
            built.as_array().unwrap().iter().map(brief).collect::<Vec<_>>()[..].join(" ")
        };
        let others = "9003/kubernetes.io/h2c 9090/http";
        assert_eq!(ports(Listeners::Tls), format!("9004/http2 {others}"));
        assert_eq!(
            ports(Listeners::Both),
            format!("9002/kubernetes.io/h2c 9004/http2 {others}")
        );
    }

    #[test]
    fn gateways_reach_ready_pickers_by_an_address_of_their_own() {
        let mut validated = testing::pool(json!({}));
        validated.way_in.envoy_gateway = true;
        let built = serde_json::to_value(&build(&validated)[2]).unwrap();
        assert_eq!(built["metadata"]["name"], "qwen-ext-proc");
        assert_eq!(
            built["spec"],
            json!({
                "type": "ClusterIP",
                "selector": {"app.kubernetes.io/component": "picker", "lmetric.io/pool": "qwen"},
                "ports": [{"name": "ext-proc", "port": 9002, "protocol": "TCP", "appProtocol": "kubernetes.io/h2c"}],
            })
        );
    }

    #[test]
    fn envoys_service_is_what_the_pool_says() {
        let standalone = json!({"service": {"type": "LoadBalancer", "port": 8081, "annotations": {"cloud/lb": "internal"}}});
        let services = build(&testing::pool(json!({"gateway": {"standalone": standalone}})));
        let built = serde_json::to_value(&services[2]).unwrap();
        assert_eq!(built["metadata"]["annotations"], json!({"cloud/lb": "internal"}));
        assert_eq!(
            built["spec"],
            json!({
                "type": "LoadBalancer",
                "selector": {"app.kubernetes.io/component": "envoy", "lmetric.io/pool": "qwen"},
                "ports": [{"name": "http", "port": 8081, "protocol": "TCP", "appProtocol": "http", "targetPort": "proxy"}],
            })
        );
    }
}
