//! The pickers' Deployment.

pub(super) mod config;
mod tokenizer;

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
    core::v1::{
        Container, EnvVar, EnvVarSource, GRPCAction, ObjectFieldSelector, PersistentVolumeClaimVolumeSource,
        PodSpec, PodTemplateSpec, Probe, Volume, VolumeMount,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lmetric_api::pool::{Component, IntOrString, Source};

use self::tokenizer::Site;
use super::{meta, pod, ports};
use crate::validated::{Images, Validated};

/// So long a new picker is ready before an old one goes: gateways look names up every few seconds.
const MIN_READY_SECONDS: i32 = 10;
/// Annotation of the pods: a hash of what pickers take over only when they start.
const RESTART: &str = "lmetric.io/restart";
/// Annotation of the pods: UID of the account that their tokens are of.
const ACCOUNT: &str = "lmetric.io/service-account";
/// From the end of draining to the end of the pod.
const END_SECONDS: i64 = 15;

/// The pickers.
pub(super) fn build(validated: &Validated, images: &Images) -> Deployment {
    let picker = &validated.pool.spec.picker;
    Deployment {
        metadata: meta::of_component(validated, Component::Picker),
        spec: DeploymentSpec {
            replicas: Some(picker.replicas),
            selector: meta::selector(validated, Component::Picker),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            min_ready_seconds: Some(MIN_READY_SECONDS),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(meta::labels(validated, Component::Picker)),
                    annotations: Some(BTreeMap::from([(
                        RESTART.to_owned(),
                        config::restart_hash(validated),
                    )])),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(validated, images)),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    }
}

/// Names the account, by its UID, that the pods run under: another one of the same name rolls them.
pub(crate) fn bind(pickers: &mut Deployment, account: String) {
    let pods = pickers.spec.template.metadata.get_or_insert_default();
    pods.annotations
        .get_or_insert_default()
        .insert(ACCOUNT.to_owned(), account);
}

/// UID of the account that they run under.
pub(crate) fn account_of(pickers: &Deployment) -> Option<&str> {
    let pods = pickers.spec.template.metadata.as_ref()?;
    pods.annotations.as_ref()?.get(ACCOUNT).map(String::as_str)
}

fn pod(validated: &Validated, images: &Images) -> PodSpec {
    let picker = &validated.pool.spec.picker;
    let placement = &picker.placement;
    let site = Site::of(validated);
    let env = site.as_ref().map_or_else(Vec::new, |site| site.env.clone());
    let downloaded = site.map_or_else(Vec::new, Site::volumes);
    let (mut volumes, mut mounts): (Vec<_>, Vec<_>) = model(validated).into_iter().chain(downloaded).unzip();
    volumes.push(pod::empty_dir("tmp", "1Gi"));
    mounts.push(pod::mount("tmp", "/tmp", false));
    PodSpec {
        containers: vec![container(validated, images, mounts, env)],
        volumes: Some(volumes),
        service_account_name: Some(Component::Picker.object_name(&validated.name)),
        image_pull_secrets: pod::pull_secrets(&picker.pull_secrets),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(config::DRAIN_SECONDS + END_SECONDS),
        affinity: Some(
            validated
                .picker_affinity
                .clone()
                .unwrap_or_else(|| pod::apart(validated, Component::Picker)),
        ),
        tolerations: Some(placement.tolerations.clone()).filter(|tolerations| !tolerations.is_empty()),
        node_selector: Some(placement.node_selector.clone()).filter(|labels| !labels.is_empty()),
        topology_spread_constraints: Some(placement.topology_spread_constraints.clone())
            .filter(|constraints| !constraints.is_empty()),
        priority_class_name: pod::said(&placement.priority_class_name),
        runtime_class_name: pod::said(&placement.runtime_class_name),
        scheduler_name: pod::said(&placement.scheduler_name),
        host_network: placement.host_network.then_some(true),
        dns_policy: placement
            .host_network
            .then(|| "ClusterFirstWithHostNet".to_owned()),
        ..PodSpec::default()
    }
}

fn container(
    validated: &Validated,
    images: &Images,
    mounts: Vec<VolumeMount>,
    mut env: Vec<EnvVar>,
) -> Container {
    let picker = &validated.pool.spec.picker;
    let args = [
        "--config-map",
        &Component::Picker.object_name(&validated.name),
        "--namespace",
        &validated.namespace,
        "--pool",
        &validated.name,
    ];
    env.push(EnvVar {
        name: "POD_NAME".to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: "metadata.name".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
    Container {
        name: Component::Picker.as_str().to_owned(),
        image: Some(pod::said(&picker.image).unwrap_or_else(|| images.picker.clone())),
        image_pull_policy: Some(images.pull_policy.clone()),
        command: Some(vec!["/lmetric-epp".to_owned()]),
        args: Some(args.map(str::to_owned).to_vec()),
        env: Some(env),
        ports: Some(
            ports::ext_proc(validated.way_in.listeners)
                .chain([("health", ports::HEALTH), ("admin", ports::ADMIN)])
                .map(|(name, port)| pod::port(name, port))
                .collect(),
        ),
        resources: Some(pod::requirements(
            &picker.resources,
            &[("cpu", "1"), ("memory", "1Gi")],
            &[("memory", "4Gi")],
        )),
        security_context: Some(pod::restricted()),
        volume_mounts: Some(mounts),
        // a picker that waits for engines, or drains, is alive
        liveness_probe: Some(probe("liveness", 10, 6)),
        readiness_probe: Some(probe("readiness", 2, 2)),
        ..Container::default()
    }
}

fn probe(service: &str, period: i32, failures: i32) -> Probe {
    Probe {
        grpc: Some(GRPCAction {
            port: ports::HEALTH,
            service: Some(service.to_owned()),
            ..GRPCAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(2),
        failure_threshold: Some(failures),
        success_threshold: Some(1),
        ..Probe::default()
    }
}

/// Where the claim of the model's files is mounted.
fn claim_path(claim: &str) -> String {
    format!("/var/lib/lmetric/claims/{claim}")
}

/// The claim that holds the model, for its tokenizer.
fn model(validated: &Validated) -> Option<(Volume, VolumeMount)> {
    match &validated.source {
        Source::Claim { claim, .. } => Some((
            Volume {
                name: "model".to_owned(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim.clone(),
                    ..PersistentVolumeClaimVolumeSource::default()
                }),
                ..Volume::default()
            },
            pod::mount("model", &claim_path(claim), true),
        )),
        Source::HuggingFace(_) | Source::ModelScope(_) | Source::File(_) | Source::S3(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::build::testing;

    fn spec(changes: Value) -> Value {
        serde_json::to_value(build(&testing::pool(changes), &testing::images()).spec).unwrap()
    }

    #[test]
    fn a_new_picker_is_ready_before_an_old_one_goes() {
        let spec = spec(json!({"picker": {"replicas": 2}}));
        assert_eq!(spec["replicas"], 2);
        assert_eq!(
            spec["strategy"]["rollingUpdate"],
            json!({"maxSurge": 1, "maxUnavailable": 0})
        );
        assert_eq!(spec["minReadySeconds"], 10);
    }

    #[test]
    fn a_picker_finds_its_configuration_by_name_and_is_probed_over_grpc() {
        let pod = spec(json!({}))["template"]["spec"].clone();
        let container = &pod["containers"][0];
        assert_eq!(container["image"], "lmetric/lmetric:1");
        assert_eq!(
            container["args"],
            json!([
                "--config-map",
                "qwen-picker",
                "--namespace",
                "models",
                "--pool",
                "qwen"
            ])
        );
        assert_eq!(
            container["readinessProbe"]["grpc"],
            json!({"port": 9003, "service": "readiness"})
        );
        assert_eq!(
            container["livenessProbe"]["grpc"],
            json!({"port": 9003, "service": "liveness"})
        );
        assert_eq!(container["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["terminationGracePeriodSeconds"], 45);
        assert_eq!(pod["serviceAccountName"], "qwen-picker");
    }

    #[test]
    fn the_pool_may_change_image_amounts_and_placement() {
        let pod = spec(json!({"picker": {
            "image": "own/picker:2", "pullSecrets": [{"name": "registry"}], "resources": {"requests": {"cpu": "100m"}},
            "placement": {"nodeSelector": {"role": "infra"}, "affinity": {"nodeAffinity": {}}, "priorityClassName": "high"},
        }}))["template"]["spec"]
            .clone();
        let container = &pod["containers"][0];
        assert_eq!(container["image"], "own/picker:2");
        assert_eq!(container["resources"], json!({"requests": {"cpu": "100m"}}));
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
        assert_eq!(pod["nodeSelector"], json!({"role": "infra"}));
        assert_eq!(pod["affinity"], json!({"nodeAffinity": {}}));
        assert_eq!(pod["priorityClassName"], "high");
    }

    #[test]
    fn a_tokenizer_is_downloaded_into_a_folder_of_the_pod_with_a_token_that_may_be_missing() {
        let pod = spec(json!({
            "model": {"uri": "hf://a/b", "secretRef": {"name": "hub", "key": "k"}},
            "engine": {"env": [
                {"name": "HF_ENDPOINT", "value": "https://mirror.example"},
                {"name": "NCCL_DEBUG", "value": "INFO"},
            ]},
        }))["template"]["spec"]
            .clone();
        assert_eq!(
            pod["volumes"],
            json!([
                {"name": "tokenizers", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "hub", "secret": {"secretName": "hub", "optional": true, "items": [{"key": "k", "path": "token"}]}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            ])
        );
        let container = &pod["containers"][0];
        assert_eq!(
            container["volumeMounts"],
            json!([
                {"name": "tokenizers", "mountPath": "/var/cache/lmetric/tokenizers"},
                {"name": "hub", "mountPath": "/var/run/lmetric/hub", "readOnly": true},
                {"name": "tmp", "mountPath": "/tmp"},
            ])
        );
        assert_eq!(
            container["env"][0],
            json!({"name": "HF_ENDPOINT", "value": "https://mirror.example"})
        );
        assert_eq!(container["env"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_variable_without_its_secret_keeps_no_picker_from_starting() {
        let variable =
            json!({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "own", "key": "t"}}});
        let pod = spec(json!({
            "model": {"uri": "hf://a/b", "secretRef": {"name": "hub"}}, "engine": {"env": [variable]},
        }))["template"]["spec"]
            .clone();
        assert_eq!(
            pod["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"],
            json!({"name": "own", "key": "t", "optional": true})
        );
        let volumes = pod["volumes"].as_array().unwrap();
        assert!(
            volumes.iter().all(|volume| volume["name"] != "hub"),
            "the pool's own variable counts"
        );
    }

    #[test]
    fn the_tokenizer_is_read_from_the_models_claim() {
        let pod = spec(json!({"model": {"uri": "pvc://weights/qwen"}}))["template"]["spec"].clone();
        assert_eq!(
            pod["volumes"][0],
            json!({"name": "model", "persistentVolumeClaim": {"claimName": "weights"}})
        );
        assert_eq!(
            pod["containers"][0]["volumeMounts"][0],
            json!({"name": "model", "mountPath": "/var/lib/lmetric/claims/weights", "readOnly": true})
        );
    }
}
