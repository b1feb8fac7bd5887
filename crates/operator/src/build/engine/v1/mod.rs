//! The first builder of the engines' pod template. It stays as it is: `testdata/engine-v1.yaml` holds what it makes, and
//! a difference would replace every engine of every pool when the operator is upgraded.

mod args;
mod env;
mod placement;
mod probes;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, ContainerPort, ExecAction, Lifecycle, LifecycleHandler,
        LocalObjectReference, PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile,
        SecurityContext, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use lmetric_api::pool::{
    Component, InferencePoolSpec, Quantity,
    names::{ENGINE_CONTAINER, annotation},
};

use super::TemplateRevision;
use crate::{
    build::{meta, ports, service_account},
    validated::Validated,
};

/// Name of the init container that installs the drain tool, of the volume that holds it, and of the tool.
pub(super) const TOOL: &str = "lmetric-drain";
/// From the end of draining to the end of the pod.
const END_SECONDS: i64 = 30;

/// The template of the pool's engines.
pub(super) fn template(validated: &Validated, tool_image: &str) -> PodTemplateSpec {
    let spec = &validated.pool.spec;
    let placement = &spec.placement;
    let (volumes, mounts) = volumes::volumes(validated);
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(meta::labels(validated, Component::Engine)),
            annotations: Some(BTreeMap::from([(
                annotation::TEMPLATE_REVISION.to_owned(),
                TemplateRevision::V1.number().to_string(),
            )])),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            init_containers: Some(vec![install(tool_image)]),
            containers: vec![engine(validated, mounts)],
            volumes: Some(volumes),
            service_account_name: Some(service_account::of_engines(validated)),
            // an account that the pool names may need its token; the pool's own has no rights
            automount_service_account_token: spec.service_account_name.is_empty().then_some(false),
            image_pull_secrets: pull_secrets(spec),
            // a Service named `vllm` would set VLLM_PORT
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(spec.lifecycle.drain_timeout.seconds_up() + END_SECONDS),
            affinity: Some(placement::affinity(validated)),
            tolerations: Some(placement::tolerations(validated)),
            node_selector: Some(placement.node_selector.clone()).filter(|labels| !labels.is_empty()),
            topology_spread_constraints: Some(placement.topology_spread_constraints.clone())
                .filter(|constraints| !constraints.is_empty()),
            priority_class_name: text(&placement.priority_class_name),
            runtime_class_name: text(&placement.runtime_class_name),
            scheduler_name: text(&placement.scheduler_name),
            host_network: placement.host_network.then_some(true),
            dns_policy: placement
                .host_network
                .then(|| "ClusterFirstWithHostNet".to_owned()),
            ..PodSpec::default()
        }),
    }
}

fn engine(validated: &Validated, mounts: Vec<VolumeMount>) -> Container {
    let spec = &validated.pool.spec;
    let resources = resources(spec);
    Container {
        name: ENGINE_CONTAINER.to_owned(),
        image: Some(spec.engine.image.clone()),
        image_pull_policy: Some(spec.engine.pull_policy.as_str().to_owned()),
        command: Some(vec!["vllm".to_owned(), "serve".to_owned()]),
        args: Some(args::args(validated)),
        env: Some(env::env(validated)),
        env_from: Some(spec.engine.env_from.clone()).filter(|sources| !sources.is_empty()),
        ports: Some(
            [ports::http(spec), ports::events(spec), ports::replay(spec)]
                .into_iter()
                .flat_map(ports::Ranks::each)
                .map(|(name, port)| ContainerPort {
                    name: Some(name),
                    container_port: port,
                    protocol: Some("TCP".to_owned()),
                    ..ContainerPort::default()
                })
                .collect(),
        ),
        resources: Some(ResourceRequirements {
            requests: Some(resources.clone()),
            limits: Some(resources),
            ..ResourceRequirements::default()
        }),
        volume_mounts: Some(mounts),
        startup_probe: Some(probes::startup(spec)),
        readiness_probe: Some(probes::readiness(spec)),
        liveness_probe: Some(probes::liveness(spec)),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(drain(validated)),
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        ..Container::default()
    }
}

fn resources(spec: &InferencePoolSpec) -> BTreeMap<String, Quantity> {
    BTreeMap::from([
        ("cpu".to_owned(), spec.resources.cpu.clone()),
        ("memory".to_owned(), spec.resources.memory.clone()),
        (
            spec.accelerator.resource_name.clone(),
            Quantity(spec.parallelism.accelerators().to_string()),
        ),
    ])
}

/// Takes the engine out of every picker and waits for its last request.
fn drain(validated: &Validated) -> Vec<String> {
    let spec = &validated.pool.spec;
    let pickers = Component::Picker.object_name(&validated.name);
    let mut command = vec![
        format!("{}/{TOOL}", volumes::TOOL_PATH),
        "--pickers".to_owned(),
        // the pod's search path adds the cluster's domain
        format!("{pickers}.{}.svc:{}", validated.namespace, ports::ADMIN),
        "--timeout".to_owned(),
        format!("{}s", spec.lifecycle.drain_timeout.seconds_up()),
    ];
    for (_, port) in ports::http(spec).each() {
        command.extend(["--engine".to_owned(), format!("127.0.0.1:{port}")]);
    }
    command
}

/// Copies the drain tool to where any engine image can run it.
fn install(tool_image: &str) -> Container {
    let amounts = |cpu: &str, memory: &str| {
        Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ]))
    };
    Container {
        name: TOOL.to_owned(),
        image: Some(tool_image.to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec![format!("/{TOOL}")]),
        args: Some(vec!["--install".to_owned(), volumes::TOOL_PATH.to_owned()]),
        resources: Some(ResourceRequirements {
            requests: amounts("10m", "16Mi"),
            limits: amounts("1", "64Mi"),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: TOOL.to_owned(),
            mount_path: volumes::TOOL_PATH.to_owned(),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

fn pull_secrets(spec: &InferencePoolSpec) -> Option<Vec<LocalObjectReference>> {
    let secrets: Vec<_> = spec
        .engine
        .pull_secrets
        .iter()
        .map(|secret| LocalObjectReference {
            name: secret.name.clone(),
        })
        .collect();
    Some(secrets).filter(|secrets| !secrets.is_empty())
}

#[cfg(test)]
mod tests;
