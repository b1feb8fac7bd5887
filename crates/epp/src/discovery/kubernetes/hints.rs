//! What a pod says of its engine itself: annotations, and vLLM's arguments. Pure.
//!
//! Pods of our operator need none of it, their pool's configuration says everything. In front of a pool that somebody
//! else made it spares a configuration. What cannot be read is as if it were absent: then the engine is asked.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use lmetric_api::KvPorts;
use serde_json::Value;

/// Port of KV events of the pod's first rank.
pub const EVENTS_PORT: &str = "lmetric.io/kv-events-port";
/// Port of replays of the pod's first rank.
pub const REPLAY_PORT: &str = "lmetric.io/kv-replay-port";
/// Data-parallel ranks behind each port.
pub const RANKS: &str = "lmetric.io/data-parallel-ranks";
/// Ports that serve, of those that the pool names; the second is what the first was called before.
const ACTIVE_PORTS: [&str; 2] = [
    "llm-d.ai/active-ports",
    "inference.networking.k8s.io/active-ports",
];
/// vLLM's default of `--kv-events-config`'s `endpoint`.
const DEFAULT_EVENTS: &str = "tcp://*:5557";
/// More ranks behind one port are a slip of the pen.
const MOST_RANKS: u16 = 64;

/// What a pod says of its engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// By its annotations.
    pub annotated_events: Option<KvPorts>,
    /// By its engine's arguments.
    pub events: Option<KvPorts>,
    /// Ranks behind one port, by annotation or arguments.
    pub ranks: Option<u16>,
    /// Only these ports serve.
    pub active_ports: Option<Vec<u16>>,
}

/// Reads a pod's annotations and its engine's container.
pub(super) fn of(annotations: &BTreeMap<String, String>, engine: Option<&Container>) -> Hints {
    let number = |name: &str| -> Option<u16> {
        let number = annotations.get(name)?.trim().parse().ok()?;
        (number > 0).then_some(number)
    };
    let arguments = Arguments::of(engine);
    let active_ports = ACTIVE_PORTS
        .iter()
        .find_map(|name| annotations.get(*name))
        .map(|ports| {
            ports
                .split(',')
                .filter_map(|port| port.trim().parse().ok())
                .collect()
        });
    Hints {
        annotated_events: number(EVENTS_PORT).map(|port| KvPorts {
            port,
            replay_port: number(REPLAY_PORT),
        }),
        events: arguments.events(),
        ranks: number(RANKS)
            .filter(|ranks| *ranks <= MOST_RANKS)
            .or_else(|| arguments.ranks()),
        active_ports,
    }
}

/// A container's command line, flag by flag: the last of each counts, as in vLLM.
struct Arguments<'a>(Vec<(String, Option<&'a str>)>);

impl<'a> Arguments<'a> {
    fn of(container: Option<&'a Container>) -> Self {
        let words = container
            .into_iter()
            .flat_map(|container| container.command.iter().chain(&container.args).flatten());
        let words: Vec<&str> = words.map(String::as_str).collect();
        let flags = words.iter().enumerate().filter_map(|(at, word)| {
            if !word.starts_with('-') {
                return None;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (*word, words.get(at + 1).copied()),
            };
            Some((name.replace('_', "-"), value))
        });
        Self(flags.collect())
    }

    fn has(&self, names: &[&str]) -> bool {
        self.0.iter().any(|(name, _)| names.contains(&name.as_str()))
    }

    fn value(&self, names: &[&str]) -> Option<&'a str> {
        self.0
            .iter()
            .rev()
            .find(|(name, _)| names.contains(&name.as_str()))
            .and_then(|(_, value)| *value)
    }

    fn events(&self) -> Option<KvPorts> {
        let config: Value = self
            .value(&["--kv-events-config"])
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        // a field may be a flag of its own
        let field = |name: &str, flag: &str| -> Option<String> {
            let value = config.get(name).filter(|value| !value.is_null());
            let text = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            self.value(&[flag]).map(str::to_owned).or(text)
        };
        let enabled = field(
            "enable_kv_cache_events",
            "--kv-events-config.enable-kv-cache-events",
        );
        if enabled.is_none_or(|enabled| !enabled.eq_ignore_ascii_case("true")) {
            return None;
        }
        let publisher = field("publisher", "--kv-events-config.publisher");
        if publisher.is_some_and(|publisher| publisher != "zmq") {
            return None;
        }
        let endpoint = field("endpoint", "--kv-events-config.endpoint");
        let replay = field("replay_endpoint", "--kv-events-config.replay-endpoint");
        Some(KvPorts {
            port: port(endpoint.as_deref().unwrap_or(DEFAULT_EVENTS))?,
            replay_port: replay.as_deref().and_then(port),
        })
    }

    /// Ranks that share a port: not where each has a port or a pod of its own.
    fn ranks(&self) -> Option<u16> {
        let apart = [
            "--data-parallel-multi-port-external-lb",
            "--data-parallel-external-lb",
            "-dpe",
            "--data-parallel-rank",
            "-dpn",
        ];
        if self.has(&apart) {
            return None;
        }
        let local = ["--data-parallel-size-local", "-dpl"];
        let all = ["--data-parallel-size", "-dp"];
        let ranks = self.value(&local).or_else(|| self.value(&all))?.parse().ok()?;
        (1..=MOST_RANKS).contains(&ranks).then_some(ranks)
    }
}

/// The port of `tcp://host:port`, where others can reach it.
fn port(endpoint: &str) -> Option<u16> {
    let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    if matches!(host, "127.0.0.1" | "localhost" | "[::1]") {
        return None;
    }
    port.parse().ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn container(words: &[&str]) -> Container {
        Container {
            args: Some(words.iter().map(|word| (*word).to_owned()).collect()),
            ..Container::default()
        }
    }

    #[rstest]
    #[case(&["--kv-events-config", r#"{"enable_kv_cache_events":true}"#], Some((5557, None)))]
    #[case(&[r#"--kv_events_config={"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://0.0.0.0:6000","replay_endpoint":"tcp://*:6100"}"#], Some((6000, Some(6100))))]
    #[case(&["--kv-events-config.enable_kv_cache_events", "True", "--kv-events-config.endpoint=tcp://*:7000"], Some((7000, None)))]
    #[case(&["--kv-events-config", r#"{"enable_kv_cache_events":false}"#], None)]
    #[case(&["--kv-events-config", r#"{"enable_kv_cache_events":true,"publisher":"null"}"#], None)]
    #[case(&["--kv-events-config", r#"{"enable_kv_cache_events":true,"endpoint":"inproc://x"}"#], None)]
    #[case(&["--kv-events-config", r#"{"enable_kv_cache_events":true,"endpoint":"tcp://127.0.0.1:5557"}"#], None)]
    #[case(&["--kv-events-config", "nonsense"], None)]
    #[case(&["--kv-events-config"], None)]
    #[case(&[], None)]
    fn events_are_where_the_engines_arguments_say(
        #[case] words: &[&str],
        #[case] expected: Option<(u16, Option<u16>)>,
    ) {
        let hints = of(&BTreeMap::new(), Some(&container(words)));
        let events = hints
            .events
            .map(|KvPorts { port, replay_port }| (port, replay_port));
        assert_eq!(events, expected);
    }

    #[rstest]
    #[case(&["--data-parallel-size", "4"], Some(4))]
    #[case(&["-dp=2"], Some(2))]
    #[case(&["--data-parallel-size", "4", "--data-parallel-size", "8"], Some(8))]
    #[case(&["--data-parallel-size=16", "--data-parallel-size-local=8", "--data-parallel-hybrid-lb"], Some(8))]
    #[case(&["--data-parallel-size", "4", "--data-parallel-multi-port-external-lb"], None)]
    #[case(&["--data-parallel-size=4", "--data-parallel-rank=1"], None)]
    #[case(&["--data-parallel-size", "many"], None)]
    #[case(&[], None)]
    fn ranks_count_where_they_share_a_port(#[case] words: &[&str], #[case] expected: Option<u16>) {
        assert_eq!(of(&BTreeMap::new(), Some(&container(words))).ranks, expected);
    }

    #[test]
    fn annotations_that_are_no_numbers_are_as_if_absent() {
        let annotations = [(EVENTS_PORT, "many"), (REPLAY_PORT, "1"), (RANKS, "0")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let hints = of(&BTreeMap::from(annotations), None);
        assert_eq!(hints, Hints::default());
    }

    #[test]
    fn the_older_name_of_active_ports_still_counts() {
        let annotations = BTreeMap::from([(ACTIVE_PORTS[1].to_owned(), "8000, 8002,x".to_owned())]);
        assert_eq!(of(&annotations, None).active_ports, Some(vec![8000, 8002]));
    }
}
