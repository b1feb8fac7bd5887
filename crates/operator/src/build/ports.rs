//! Ports: the pickers' and Envoy's own, and those of an engine's ranks.

use lmetric_api::pool::InferencePoolSpec;

use crate::validated::Listeners;

/// ext-proc of pickers in plaintext.
pub const EXT_PROC: i32 = 9_002;
/// ext-proc of pickers over TLS.
pub const EXT_PROC_TLS: i32 = 9_004;
/// gRPC health of pickers, never encrypted.
pub const HEALTH: i32 = 9_003;
/// Metrics, debugging and draining of pickers.
pub const ADMIN: i32 = 9_090;
/// Requests to the standalone Envoy; its Service has a port of its own.
pub const PROXY: i32 = 8_080;
/// `/ready` and `/stats/prometheus` of the standalone Envoy.
pub const ENVOY_STATUS: i32 = 9_902;
/// Envoy's admin, on loopback only.
pub const ENVOY_ADMIN: i32 = 9_901;

/// Names and numbers of the pickers' ext-proc ports.
pub fn ext_proc(listeners: Listeners) -> impl Iterator<Item = (&'static str, i32)> {
    let plaintext = listeners.plaintext().then_some(("ext-proc", EXT_PROC));
    let tls = listeners.tls().then_some(("ext-proc-tls", EXT_PROC_TLS));
    plaintext.into_iter().chain(tls)
}

/// A run of ports, one for each data-parallel rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// What the first is called; rank R is `NAME-R`.
    pub name: &'static str,
    /// Port of rank 0.
    pub first: i32,
    /// How many.
    pub count: i32,
}

impl Ranks {
    /// Name and port of each rank.
    pub fn each(self) -> impl Iterator<Item = (String, i32)> {
        (0..self.count).map(move |rank| {
            let name = match rank {
                0 => self.name.to_owned(),
                rank => format!("{}-{rank}", self.name),
            };
            (name, self.first + rank)
        })
    }

    /// Port of the last rank.
    pub fn last(self) -> i32 {
        self.first + self.count - 1
    }
}

/// The HTTP API of an engine's ranks.
pub fn http(spec: &InferencePoolSpec) -> Ranks {
    Ranks {
        name: "http",
        first: spec.engine.port,
        count: spec.parallelism.data,
    }
}

/// Where an engine's ranks publish KV events.
pub fn events(spec: &InferencePoolSpec) -> Ranks {
    Ranks {
        name: "kv-events",
        first: spec.engine.kv_events.port,
        count: spec.parallelism.data,
    }
}

/// Where missed KV events are asked for.
pub fn replay(spec: &InferencePoolSpec) -> Ranks {
    Ranks {
        name: "kv-replay",
        first: spec.engine.kv_events.replay_port,
        count: spec.parallelism.data,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::testing;

    #[test]
    fn every_rank_has_ports_of_its_own_under_short_names() {
        let validated = testing::pool(json!({"parallelism": {"data": 2}}));
        let spec = &validated.pool.spec;
        let all: Vec<_> = [http(spec), events(spec), replay(spec)]
            .into_iter()
            .flat_map(Ranks::each)
            .map(|(name, port)| format!("{name}={port}"))
            .collect();
        assert_eq!(
            all,
            [
                "http=8000",
                "http-1=8001",
                "kv-events=5557",
                "kv-events-1=5558",
                "kv-replay=5657",
                "kv-replay-1=5658"
            ]
        );
        let longest = Ranks {
            count: 64,
            ..replay(spec)
        };
        assert!(longest.each().all(|(name, _)| name.len() <= 15));
    }
}
