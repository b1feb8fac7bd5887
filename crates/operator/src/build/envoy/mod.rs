//! The standalone Envoy: ConfigMap and Deployment.

pub(super) mod bootstrap;

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
    core::v1::{
        ConfigMap, ConfigMapVolumeSource, Container, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler,
        PodSpec, PodTemplateSpec, Probe, ResourceRequirements, TCPSocketAction, Volume,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lmetric_api::pool::{Component, FailureMode, IntOrString, Quantity, Standalone};
use xxhash_rust::xxh3::xxh3_64;

use super::{meta, pod, ports};
use crate::validated::{Images, Validated, Versions};

/// Key of the ConfigMap that holds the configuration.
const KEY: &str = "envoy.yaml";
const FOLDER: &str = "/etc/lmetric-envoy";
/// Annotation of the pods: Envoy reads its configuration once, so another one needs other pods.
const CONFIG_HASH: &str = "lmetric.io/config-hash";
/// From the end of draining to the end of the pod.
const END_SECONDS: i64 = 30;
/// Between the start of draining and the closing of the port: nodes learn that the pod has gone from the Service.
const LISTENER_SECONDS: u32 = 10;
/// Worker threads without a limit of processors; Envoy would take one for each processor of the node.
const WORKERS: u32 = 4;

/// Envoy's configuration.
pub(super) fn config_map(validated: &Validated) -> ConfigMap {
    ConfigMap {
        metadata: meta::of_component(validated, Component::Envoy),
        data: Some(BTreeMap::from([(KEY.to_owned(), bootstrap::yaml(validated))])),
        ..ConfigMap::default()
    }
}

/// Envoy's pods.
pub(super) fn deployment(
    validated: &Validated,
    standalone: &Standalone,
    images: &Images,
    versions: &Versions,
) -> Deployment {
    let hash = format!("{:016x}", xxh3_64(bootstrap::yaml(validated).as_bytes()));
    Deployment {
        metadata: meta::of_component(validated, Component::Envoy),
        spec: DeploymentSpec {
            replicas: Some(standalone.replicas),
            selector: meta::selector(validated, Component::Envoy),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(meta::labels(validated, Component::Envoy)),
                    annotations: Some(BTreeMap::from([(CONFIG_HASH.to_owned(), hash)])),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(validated, standalone, images, versions)),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    }
}

fn pod_spec(validated: &Validated, standalone: &Standalone, images: &Images, versions: &Versions) -> PodSpec {
    let drain_seconds = validated.pool.spec.lifecycle.drain_timeout.seconds_up();
    let config = Volume {
        name: "config".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: Component::Envoy.object_name(&validated.name),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    PodSpec {
        init_containers: Some(vec![pod::install_tool(&versions.tool_image, &images.pull_policy)]),
        containers: vec![container(
            standalone,
            images,
            drain_seconds,
            validated.pool.spec.routing.failure_mode,
        )],
        volumes: Some(vec![config, pod::empty_dir(pod::TOOL, "64Mi")]),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(drain_seconds + END_SECONDS),
        affinity: Some(pod::apart(validated, Component::Envoy)),
        ..PodSpec::default()
    }
}

fn container(standalone: &Standalone, images: &Images, drain_seconds: i64, mode: FailureMode) -> Container {
    let resources = pod::requirements(
        &standalone.resources,
        &[("cpu", "1"), ("memory", "512Mi")],
        &[("memory", "2Gi")],
    );
    let args = [
        "--config-path".to_owned(),
        format!("{FOLDER}/{KEY}"),
        "--concurrency".to_owned(),
        workers(&resources).to_string(),
        "--disable-hot-restart".to_owned(),
        "--drain-time-s".to_owned(),
        LISTENER_SECONDS.to_string(),
        "--drain-strategy".to_owned(),
        "immediate".to_owned(),
    ];
    let drain = [
        format!("{}/{}", pod::TOOL_PATH, pod::TOOL),
        "--envoy".to_owned(),
        format!("127.0.0.1:{}", ports::ENVOY_ADMIN),
        "--timeout".to_owned(),
        format!("{drain_seconds}s"),
    ];
    Container {
        name: Component::Envoy.as_str().to_owned(),
        image: Some(pod::said(&standalone.image).unwrap_or_else(|| images.envoy.clone())),
        image_pull_policy: Some(images.pull_policy.clone()),
        command: Some(vec!["/usr/local/bin/envoy".to_owned()]),
        args: Some(args.to_vec()),
        ports: Some(vec![
            pod::port("proxy", ports::PROXY),
            pod::port("status", ports::ENVOY_STATUS),
        ]),
        resources: Some(resources),
        security_context: Some(pod::restricted()),
        volume_mounts: Some(vec![
            pod::mount("config", FOLDER, true),
            pod::mount(pod::TOOL, pod::TOOL_PATH, true),
        ]),
        // a new Envoy gets requests once it knows a picker; later it answers for itself while there is none
        startup_probe: (mode == FailureMode::FailClose).then(|| Probe {
            http_get: Some(status(bootstrap::KNOWS_A_PICKER)),
            period_seconds: Some(1),
            timeout_seconds: Some(2),
            failure_threshold: Some(3_600),
            ..Probe::default()
        }),
        readiness_probe: Some(Probe {
            http_get: Some(status("/ready")),
            period_seconds: Some(2),
            timeout_seconds: Some(2),
            failure_threshold: Some(2),
            success_threshold: Some(1),
            ..Probe::default()
        }),
        liveness_probe: Some(Probe {
            tcp_socket: Some(TCPSocketAction {
                port: IntOrString::String("status".to_owned()),
                ..TCPSocketAction::default()
            }),
            period_seconds: Some(10),
            timeout_seconds: Some(5),
            failure_threshold: Some(6),
            success_threshold: Some(1),
            ..Probe::default()
        }),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(drain.to_vec()),
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        ..Container::default()
    }
}

/// A path of the status listener.
fn status(path: &str) -> HTTPGetAction {
    HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::String("status".to_owned()),
        scheme: Some("HTTP".to_owned()),
        ..HTTPGetAction::default()
    }
}

/// One for each processor that the container may use.
fn workers(resources: &ResourceRequirements) -> u32 {
    resources
        .limits
        .as_ref()
        .and_then(|limits| limits.get("cpu"))
        .and_then(processors)
        .unwrap_or(WORKERS)
}

/// Whole processors, rounded up: `2`, `1500m` and `1.5` are two.
fn processors(Quantity(amount): &Quantity) -> Option<u32> {
    let count = match amount.strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<f64>().ok()? / 1_000.0,
        None => amount.parse::<f64>().ok()?,
    };
    (count > 0.0 && count <= 1_024.0).then(|| count.ceil() as u32)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn built(standalone: Value, mut spec: Value) -> Value {
        spec["gateway"] = Value::from_iter([("standalone", standalone)]);
        let validated = testing::pool(spec);
        let standalone = validated.pool.spec.gateway.standalone.clone().unwrap();
        let deployment = deployment(&validated, &standalone, &testing::images(), &testing::versions());
        serde_json::to_value(deployment.spec).unwrap()
    }

    fn container_of(deployment: &Value) -> &Value {
        &deployment["template"]["spec"]["containers"][0]
    }

    #[test]
    fn envoy_drains_before_it_ends() {
        let built = built(json!({}), json!({"lifecycle": {"drainTimeout": "20s"}}));
        assert_eq!(
            container_of(&built)["lifecycle"]["preStop"]["exec"]["command"],
            json!([
                "/var/lib/lmetric/bin/lmetric-drain",
                "--envoy",
                "127.0.0.1:9901",
                "--timeout",
                "20s"
            ])
        );
        assert_eq!(built["template"]["spec"]["terminationGracePeriodSeconds"], 50);
        assert_eq!(
            built["template"]["spec"]["initContainers"][0]["args"],
            json!(["--install", "/var/lib/lmetric/bin"])
        );
    }

    #[test]
    fn another_configuration_makes_other_pods_and_the_same_does_not() {
        let hash = |changes: Value| {
            built(json!({}), changes)["template"]["metadata"]["annotations"]["lmetric.io/config-hash"].clone()
        };
        assert_eq!(hash(json!({})), hash(json!({"replicas": 4})));
        assert_ne!(
            hash(json!({})),
            hash(json!({"routing": {"failureMode": "FailOpen"}}))
        );
    }

    #[test]
    fn there_is_a_worker_for_each_processor() {
        for (cpu, workers) in [("2", "2"), ("1500m", "2"), ("0.5", "1"), ("100m", "1")] {
            let built = built(json!({"resources": {"limits": {"cpu": cpu}}}), json!({}));
            assert_eq!(container_of(&built)["args"][3], workers, "{cpu}");
        }
        assert_eq!(container_of(&built(json!({}), json!({})))["args"][3], "4");
    }

    #[test]
    fn envoy_is_probed_where_draining_does_not_close_the_port() {
        let built = built(json!({"replicas": 3, "image": "own/envoy:1"}), json!({}));
        let container = container_of(&built);
        assert_eq!(built["replicas"], 3);
        assert_eq!(container["image"], "own/envoy:1");
        assert_eq!(
            container["readinessProbe"]["httpGet"],
            json!({"path": "/ready", "port": "status", "scheme": "HTTP"})
        );
        assert_eq!(container["livenessProbe"]["tcpSocket"], json!({"port": "status"}));
        assert_eq!(
            container["startupProbe"]["httpGet"],
            json!({"path": "/picker", "port": "status", "scheme": "HTTP"})
        );
        assert_eq!(built["template"]["spec"]["automountServiceAccountToken"], false);
    }

    #[test]
    fn the_config_map_holds_the_file_that_envoy_is_given() {
        let validated = testing::pool(json!({}));
        let map = config_map(&validated);
        assert_eq!(map.metadata.name.as_deref(), Some("qwen-envoy"));
        assert!(map.data.unwrap()[KEY].contains("x-gateway-destination-endpoint"));
    }
}
