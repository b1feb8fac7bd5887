//! `/kv_event_sources`: where an engine's ranks publish their KV events.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;

/// Where one rank's events come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventAddress {
    /// PUB endpoint.
    pub events: String,
    /// ROUTER endpoint for replay.
    pub replay: Option<String>,
}

/// Reads the answer of `/kv_event_sources`; wildcard hosts become `engine`. Ranks that do not publish over
/// TCP, or only on a loopback that is not ours, are left out.
pub fn parse(body: &[u8], engine: IpAddr) -> Result<BTreeMap<u16, EventAddress>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Source {
        #[serde(default)]
        enable_kv_cache_events: bool,
        endpoint: Option<String>,
        replay_endpoint: Option<String>,
    }
    let sources: BTreeMap<u16, Source> = serde_json::from_slice(body)?;
    let ranks = sources.into_iter().filter_map(|(rank, source)| {
        let events = source.endpoint.filter(|_| source.enable_kv_cache_events)?;
        let events = reachable(&events, engine)?;
        let replay = source
            .replay_endpoint
            .and_then(|replay| reachable(&replay, engine));
        Some((rank, EventAddress { events, replay }))
    });
    Ok(ranks.collect())
}

fn reachable(endpoint: &str, engine: IpAddr) -> Option<String> {
    let (host, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let host = host.trim_matches(['[', ']']);
    let wildcard = host == "*" || host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified());
    if wildcard {
        return Some(format!("tcp://{}", std::net::SocketAddr::new(engine, port)));
    }
    let loopback = host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
    if loopback && !engine.is_loopback() {
        return None;
    }
    Some(endpoint.to_owned())
}

/// The endpoint of another rank: vLLM adds the rank to the port.
pub fn of_rank(endpoint: &str, from: u16, to: u16) -> Option<String> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let port = u16::try_from(i32::from(port) + i32::from(to) - i32::from(from)).ok()?;
    Some(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_RANKS: &[u8] = include_bytes!("../../testdata/kv_event_sources-dp2.json");

    #[test]
    fn a_captured_answer_names_every_rank_with_the_engines_own_ip() {
        let ranks = parse(TWO_RANKS, IpAddr::from([127, 0, 0, 9])).expect("parses");
        let expected = |port: u16| EventAddress {
            events: format!("tcp://127.0.0.9:{port}"),
            replay: Some(format!("tcp://127.0.0.1:{}", port + 100)),
        };
        assert_eq!(
            ranks.into_iter().collect::<Vec<_>>(),
            [(0, expected(5_600)), (1, expected(5_601))]
        );
    }

    #[test]
    fn a_loopback_of_another_machine_is_not_ours() {
        let ranks = parse(TWO_RANKS, IpAddr::from([10, 0, 0, 9])).expect("parses");
        assert_eq!(ranks[&0].events, "tcp://10.0.0.9:5600");
        assert_eq!(ranks[&0].replay, None);
    }

    #[test]
    fn ranks_follow_each_other_by_port() {
        assert_eq!(
            of_rank("tcp://10.0.0.1:5557", 0, 3).as_deref(),
            Some("tcp://10.0.0.1:5560")
        );
        assert_eq!(
            of_rank("tcp://10.0.0.1:5560", 3, 0).as_deref(),
            Some("tcp://10.0.0.1:5557")
        );
        assert_eq!(of_rank("tcp://10.0.0.1:65535", 0, 1), None);
    }
}
