//! From a pod to the endpoints that it is. Pure.
//!
//! A pod becomes endpoints when it is ready for the first time, and stays some until it is gone: one that is not ready
//! for a moment, or ends, takes no new requests, but the requests that it has still count.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use lmetric_api::{KvPorts, PodEndpoints};
use lmetric_prefix::BlockSize;

use super::hints::{self, Hints};
use crate::discovery::{Endpoint, KnownPod};

/// Name of the engine's container in pods of our operator.
const ENGINE: &str = "engine";

/// What matters of a pod; everything else of the object is dropped at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// UID.
    pub uid: Arc<str>,
    /// Name, for messages.
    pub name: String,
    /// Its addresses; the first is where requests go.
    pub ips: Vec<IpAddr>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The condition Ready is True, or only its node's silence has taken that away.
    pub ready: bool,
    /// It has a deletionTimestamp.
    pub deleted: bool,
    /// Its containers have ended; another pod may have its address.
    pub ended: bool,
    /// UID and restarts of the engine's container.
    pub incarnation: String,
    /// What its annotations and arguments say.
    pub hints: Hints,
}

impl PodFacts {
    /// From the object; `ports` tell which container is the engine where none is called so. `None` without a UID.
    pub fn of(pod: Pod, ports: &[u16]) -> Option<Self> {
        let Pod {
            metadata,
            spec,
            status,
        } = pod;
        let uid: Arc<str> = metadata.uid?.into();
        let status = status.unwrap_or_default();
        let containers = spec.map(|spec| spec.containers).unwrap_or_default();
        let engine = engine(&containers, ports);
        let restarts = status
            .container_statuses
            .iter()
            .flatten()
            .find(|status| engine.is_some_and(|engine| engine.name == status.name))
            .map_or(0, |status| status.restart_count);
        let first = status.pod_ip.iter().map(String::as_str);
        let others = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
        let mut ips = Vec::new();
        for ip in first.chain(others).filter_map(|ip| ip.parse().ok()) {
            if !ips.contains(&ip) {
                ips.push(ip);
            }
        }
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let ready = is(conditions, "Ready", "True").is_some() || is_silent(conditions);
        Some(Self {
            incarnation: format!("{uid}/{restarts}"),
            uid,
            name: metadata.name.unwrap_or_default(),
            ips,
            labels: metadata.labels.unwrap_or_default(),
            ready,
            deleted: metadata.deletion_timestamp.is_some(),
            ended: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            hints: hints::of(&metadata.annotations.unwrap_or_default(), engine),
        })
    }

    /// As drain requests know it.
    pub fn known(&self) -> KnownPod {
        KnownPod {
            uid: self.uid.clone(),
            ips: self.ips.clone(),
            incarnation: self.incarnation.clone(),
        }
    }

    /// The endpoints that it is: ports × ranks.
    pub fn endpoints(&self, settings: &PodEndpoints, ports: &[u16], model: &str) -> Vec<Endpoint> {
        let Some(ip) = self.ips.first().copied().filter(|_| !self.ended) else {
            return Vec::new();
        };
        let ranks = settings.ranks.or(self.hints.ranks).unwrap_or(1);
        let events = self
            .hints
            .annotated_events
            .or(settings.kv_events)
            .or(self.hints.events);
        let mut endpoints = Vec::new();
        for (at, port) in ports.iter().enumerate() {
            let active = self.hints.active_ports.as_ref();
            if active.is_some_and(|active| !active.contains(port)) {
                continue;
            }
            for rank in 0..ranks {
                let source = at * usize::from(ranks) + usize::from(rank);
                let (events, replay) = event_addresses(ip, events, source);
                endpoints.push(Endpoint {
                    address: SocketAddr::new(ip, *port),
                    rank: (ranks > 1).then_some(rank),
                    model: model.to_owned(),
                    events,
                    replay,
                    block_size: settings.block_size.and_then(BlockSize::new),
                    incarnation: self.incarnation.clone(),
                    terminating: self.deleted,
                    ready: self.ready,
                    pod: Some(self.uid.clone()),
                });
            }
        }
        endpoints
    }
}

fn is<'a>(conditions: &'a [PodCondition], kind: &str, status: &str) -> Option<&'a PodCondition> {
    conditions
        .iter()
        .find(|condition| condition.type_ == kind && condition.status == status)
}

/// Whether the kubelet's last word was that all containers are ready, and the node's controller took the pod's readiness
/// away because it hears no more from the kubelet. The engine may be as well as ever, and so may those of all other nodes
/// of which nothing is heard: our own reads of it tell. A readiness gate takes it away too, with a reason.
fn is_silent(conditions: &[PodCondition]) -> bool {
    let taken = is(conditions, "Ready", "False").is_some_and(|ready| {
        ready
            .reason
            .as_deref()
            .is_none_or(|reason| reason.starts_with("Node"))
    });
    taken && is(conditions, "ContainersReady", "True").is_some()
}

/// Where the pod's `source`-th rank publishes.
fn event_addresses(ip: IpAddr, ports: Option<KvPorts>, source: usize) -> (Option<String>, Option<String>) {
    let Some(KvPorts { port, replay_port }) = ports else {
        return (None, None);
    };
    let address = |first: u16| {
        let port = u16::try_from(usize::from(first) + source).ok()?;
        Some(format!("tcp://{}", SocketAddr::new(ip, port)))
    };
    let events = address(port);
    let replay = events.as_ref().and(replay_port).and_then(address);
    (events, replay)
}

/// The container that serves: the one called `engine`, else the one that declares one of the ports, else the first.
fn engine<'a>(containers: &'a [Container], ports: &[u16]) -> Option<&'a Container> {
    let declares = |container: &&Container| {
        let declared = container.ports.iter().flatten();
        declared
            .map(|port| port.container_port)
            .any(|port| ports.iter().any(|wanted| i32::from(*wanted) == port))
    };
    containers
        .iter()
        .find(|container| container.name == ENGINE)
        .or_else(|| containers.iter().find(declares))
        .or_else(|| containers.first())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn object(changes: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "p", "uid": "u", "labels": {"app": "vllm"}, "annotations": {}},
            "spec": {"containers": [
                {"name": "proxy", "ports": [{"containerPort": 15000}]},
                {"name": "vllm", "ports": [{"containerPort": 8000}], "args": []},
            ]},
            "status": {
                "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    {"name": "proxy", "restartCount": 7, "image": "", "imageID": "", "ready": true},
                    {"name": "vllm", "restartCount": 2, "image": "", "imageID": "", "ready": true},
                ],
            },
        });
        merge(&mut pod, changes);
        serde_json::from_value(pod).expect("a pod")
    }

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    /// `address rank events replay` of each endpoint.
    fn lines(pod: &Value, settings: &PodEndpoints, ports: &[u16]) -> Vec<String> {
        let facts = PodFacts::of(object(pod), ports).expect("a UID");
        let said = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        facts
            .endpoints(settings, ports, "m")
            .into_iter()
            .map(|endpoint| {
                let rank = said(endpoint.rank.map(|rank| rank.to_string()));
                let (events, replay) = (said(endpoint.events), said(endpoint.replay));
                format!("{} {rank} {events} {replay}", endpoint.address)
            })
            .collect()
    }

    fn settings(ranks: Option<u16>, kv_events: Option<(u16, Option<u16>)>) -> PodEndpoints {
        PodEndpoints {
            ranks,
            kv_events: kv_events.map(|(port, replay_port)| KvPorts { port, replay_port }),
            ..PodEndpoints::default()
        }
    }

    const ARGS: &str =
        "vllm serve m --kv-events-config {\"enable_kv_cache_events\":true,\"endpoint\":\"tcp://*:6000\"}";

    #[rstest]
    #[case::plain(json!({}), settings(None, None), &[8000], &["10.0.0.1:8000 - - -"])]
    #[case::events(
        json!({}), settings(None, Some((5557, Some(5657)))), &[8000],
        &["10.0.0.1:8000 - tcp://10.0.0.1:5557 tcp://10.0.0.1:5657"]
    )]
    #[case::a_port_for_each_rank(
        json!({}), settings(Some(1), Some((5557, Some(5657)))), &[8000, 8001],
        &[
            "10.0.0.1:8000 - tcp://10.0.0.1:5557 tcp://10.0.0.1:5657",
            "10.0.0.1:8001 - tcp://10.0.0.1:5558 tcp://10.0.0.1:5658",
        ]
    )]
    #[case::ranks_behind_a_port(
        json!({}), settings(Some(2), Some((5557, None))), &[8000],
        &["10.0.0.1:8000 0 tcp://10.0.0.1:5557 -", "10.0.0.1:8000 1 tcp://10.0.0.1:5558 -"]
    )]
    #[case::ranks_of_the_pods_own_words(
        json!({"metadata": {"annotations": {"lmetric.io/data-parallel-ranks": "2"}}}), settings(None, None), &[8000],
        &["10.0.0.1:8000 0 - -", "10.0.0.1:8000 1 - -"]
    )]
    #[case::the_configuration_before_arguments(
        json!({"spec": {"containers": [{"name": "engine", "command": ARGS.split(' ').collect::<Vec<_>>()}]}}),
        settings(None, Some((5557, None))), &[8000], &["10.0.0.1:8000 - tcp://10.0.0.1:5557 -"]
    )]
    #[case::arguments(
        json!({"spec": {"containers": [{"name": "engine", "command": ARGS.split(' ').collect::<Vec<_>>()}]}}),
        settings(None, None), &[8000], &["10.0.0.1:8000 - tcp://10.0.0.1:6000 -"]
    )]
    #[case::annotations_before_the_configuration(
        json!({"metadata": {"annotations": {"lmetric.io/kv-events-port": "7000", "lmetric.io/kv-replay-port": "7100"}}}),
        settings(None, Some((5557, None))), &[8000], &["10.0.0.1:8000 - tcp://10.0.0.1:7000 tcp://10.0.0.1:7100"]
    )]
    #[case::inactive_ports_keep_their_places(
        json!({"metadata": {"annotations": {"llm-d.ai/active-ports": "8001"}}}),
        settings(None, Some((5557, None))), &[8000, 8001], &["10.0.0.1:8001 - tcp://10.0.0.1:5558 -"]
    )]
    #[case::ipv6(
        json!({"status": {"podIP": "fd00::1", "podIPs": []}}), settings(None, Some((5557, None))), &[8000],
        &["[fd00::1]:8000 - tcp://[fd00::1]:5557 -"]
    )]
    #[case::no_address_yet(json!({"status": {"podIP": null, "podIPs": null}}), settings(None, None), &[8000], &[])]
    #[case::ended(json!({"status": {"phase": "Failed"}}), settings(None, None), &[8000], &[])]
    fn a_pod_is_its_ports_times_its_ranks(
        #[case] pod: Value,
        #[case] settings: PodEndpoints,
        #[case] ports: &[u16],
        #[case] expected: &[&str],
    ) {
        assert_eq!(lines(&pod, &settings, ports), expected);
    }

    #[rstest]
    #[case::serves(json!({}), true, false)]
    #[case::deleted(json!({"metadata": {"deletionTimestamp": "2026-11-30T00:00:00Z"}}), true, true)]
    #[case::not_ready(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}), false, false)]
    #[case::silent(json!({"status": {"conditions": [
        {"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]}}), true, false)]
    #[case::of_a_closed_gate(json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
        {"type": "ContainersReady", "status": "True"}]}}), false, false)]
    #[case::of_unknown_state(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}), false, false)]
    #[case::without_a_condition(json!({"status": {"conditions": null}}), false, false)]
    fn only_ready_pods_that_are_not_deleted_take_requests(
        #[case] pod: Value,
        #[case] ready: bool,
        #[case] terminating: bool,
    ) {
        let facts = PodFacts::of(object(&pod), &[8000]).expect("a UID");
        let endpoints = facts.endpoints(&PodEndpoints::default(), &[8000], "m");
        assert_eq!(
            (endpoints[0].ready, endpoints[0].terminating),
            (ready, terminating)
        );
    }

    #[rstest]
    #[case::the_one_that_declares_the_port(json!({}), "u/2")]
    #[case::the_one_of_the_name(
        json!({"spec": {"containers": [{"name": "vllm", "ports": [{"containerPort": 8000}]}, {"name": "engine"}]},
               "status": {"containerStatuses": [
                   {"name": "engine", "restartCount": 5, "image": "", "imageID": "", "ready": true}]}}),
        "u/5"
    )]
    #[case::not_started_yet(json!({"status": {"containerStatuses": null}}), "u/0")]
    fn the_incarnation_counts_the_engines_restarts_alone(#[case] pod: Value, #[case] expected: &str) {
        let facts = PodFacts::of(object(&pod), &[8000]).expect("a UID");
        assert_eq!(facts.incarnation, expected);
        assert_eq!(facts.known().ips.len(), 2, "both families");
    }
}
