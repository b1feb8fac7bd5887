//! Endpoints that are pods: which ones, and what each of them serves.
//!
//! ```yaml
//! endpoints:
//!   kubernetes:
//!     selector: {lmetric.io/pool: qwen, app.kubernetes.io/component: engine}   # labels that a pod must have
//!     ports: [8000]                    # each is an endpoint; several: one data-parallel rank behind each
//!     ranks: 1                         # ranks behind each port, chosen by a request header
//!     kvEvents: {port: 5557, replayPort: 5657}   # of rank 0 of the pod; the others follow, one port each
//!     blockSize: 16
//!     model: qwen3-30b
//! ```
//!
//! `selector` and `ports` are absent where another object says them: a GIE InferencePool, by `--pool-name`.
//! `kvEvents` absent: from the pod's annotations, its vLLM arguments, or the engine itself. `ranks` absent: from the
//! pod's annotation or arguments, else 1. `blockSize` absent: from the engine. `model` absent: the first of `models`,
//! else the pool's name.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::raw::Check;
use crate::{ConfigError, ModelGroup};

/// Ports of one pod: GIE allows as many.
const MOST_PORTS: usize = 8;
/// Ranks behind one port.
const MOST_RANKS: u16 = 64;

/// Endpoints that are pods of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodEndpoints {
    /// Which pods, by which ports; `None`: a GIE InferencePool says so.
    pub pods: Option<Pods>,
    /// Data-parallel ranks behind each port; `None`: the pod says so.
    pub ranks: Option<u16>,
    /// Ports of KV events; `None`: the pod or its engine says so.
    pub kv_events: Option<KvPorts>,
    /// Tokens per block; `None`: the engine says so.
    pub block_size: Option<u32>,
    /// Model that they serve, by one of the names of a tokenizer group.
    pub model: Option<String>,
}

/// Which pods, by which ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Labels that a pod must have; at least one.
    pub selector: BTreeMap<String, String>,
    /// Each is an endpoint; at least one.
    pub ports: Vec<u16>,
}

/// Ports of KV events of a pod's first rank; the others follow, one port each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct KvPorts {
    /// PUB.
    pub port: u16,
    /// ROUTER, for what was missed.
    #[serde(default)]
    pub replay_port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawPods {
    #[serde(default)]
    selector: BTreeMap<String, String>,
    #[serde(default)]
    ports: Vec<u16>,
    ranks: Option<u16>,
    kv_events: Option<KvPorts>,
    block_size: Option<u32>,
    model: Option<String>,
}

impl RawPods {
    pub(crate) fn validate(
        self,
        check: &Check<'_>,
        models: &[ModelGroup],
    ) -> Result<PodEndpoints, ConfigError> {
        let Self {
            selector,
            ports,
            ranks,
            kv_events,
            block_size,
            model,
        } = self;
        let error = |field: &str, problem: &str, remedy: &str| {
            Err(check.error(format!("endpoints.kubernetes.{field}"), problem, remedy))
        };
        let pods = match (selector.is_empty(), ports.is_empty()) {
            (true, true) => None,
            (false, false) => Some(Pods { selector, ports }),
            (true, false) => {
                return error(
                    "selector",
                    "is missing",
                    "write the labels of the engines' pods, or remove ports too and give --pool-name",
                );
            }
            (false, true) => {
                return error(
                    "ports",
                    "is missing",
                    "write the engines' ports, for example [8000], or remove selector too and give --pool-name",
                );
            }
        };
        let count = pods.as_ref().map_or(1, |pods| pods.ports.len());
        if let Some(Pods { ports, .. }) = &pods {
            let twice = ports
                .iter()
                .enumerate()
                .any(|(at, port)| ports[..at].contains(port));
            if twice || ports.contains(&0) || count > MOST_PORTS {
                return error(
                    "ports",
                    "holds 0, a port twice, or more than 8 ports",
                    "write each port of the engine once, from 1 to 65535",
                );
            }
        }
        if ranks.is_some_and(|ranks| !(1..=MOST_RANKS).contains(&ranks)) {
            return error("ranks", "is out of range", "write something from 1 to 64");
        }
        if let Some(KvPorts { port, replay_port }) = kv_events {
            let sources = count * usize::from(ranks.unwrap_or(1));
            let run = |first: u16| usize::from(first)..usize::from(first) + sources;
            let (events, replays) = (run(port), replay_port.map(run));
            if port == 0 || replay_port == Some(0) || events.end > 65_536 {
                return error(
                    "kvEvents",
                    "has a port that does not exist",
                    "write ports from 1 to 65535, with room for one for each rank",
                );
            }
            if replays.is_some_and(|replays| {
                replays.end > 65_536 || (replays.start < events.end && events.start < replays.end)
            }) {
                return error(
                    "kvEvents.replayPort",
                    "overlaps the ports of events",
                    "leave as many ports between the two as there are ranks",
                );
            }
        }
        if block_size == Some(0) {
            return error(
                "blockSize",
                "is 0",
                "write the engine's tokens per block, or leave it out",
            );
        }
        if model.as_ref().is_some_and(|model| model.trim().is_empty()) {
            return error(
                "model",
                "is empty",
                "write the name of the model, or leave it out",
            );
        }
        Ok(PodEndpoints {
            pods,
            ranks,
            kv_events,
            block_size,
            model: model.or_else(|| models.first().map(|group| group.name().to_owned())),
        })
    }
}
