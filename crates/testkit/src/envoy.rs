//! The shipped Envoy configurations, moved to a stage's addresses, and a running Envoy.

mod run;

use std::net::SocketAddr;

use anyhow::Context;
pub use run::Envoy;
use serde_yaml::{Mapping, Value};

const LIGHT: &str = include_str!("../../../envoy/light.yaml");
const FULL: &str = include_str!("../../../envoy/full.yaml");

/// Which shipped file to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plug {
    /// `envoy/light.yaml`.
    Light,
    /// `envoy/full.yaml`.
    Full,
}

/// A body mode for request and response that no shipped file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyMode {
    /// Chunks are copied to the picker while Envoy keeps them.
    Streamed,
    /// The picker sees the heads only.
    HeadersOnly,
}

/// A configuration: a shipped file plus what the caller changed.
#[derive(Clone, Debug)]
pub struct EnvoyConfig {
    root: Value,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl EnvoyConfig {
    /// The shipped file with its listener, its admin port and the picker's address replaced, and nothing else.
    pub fn shipped(
        plug: Plug,
        listen: SocketAddr,
        admin: SocketAddr,
        picker: SocketAddr,
        health: u16,
    ) -> anyhow::Result<Self> {
        let text = match plug {
            Plug::Light => LIGHT,
            Plug::Full => FULL,
        };
        let root: Value = serde_yaml::from_str(text).context("shipped Envoy configuration")?;
        let mut config = Self { root, listen, admin };
        set_address(config.at(&["admin", "address"])?, admin)?;
        set_address(
            config
                .listener()?
                .get_mut("address")
                .context("listener without address")?,
            listen,
        )?;
        let endpoint = config.cluster("picker")?;
        let endpoint = walk(
            endpoint,
            &[
                "load_assignment",
                "endpoints",
                "0",
                "lb_endpoints",
                "0",
                "endpoint",
            ],
        )?;
        set_address(walk(endpoint, &["address"])?, picker)?;
        *walk(endpoint, &["health_check_config", "port_value"])? = health.into();
        Ok(config)
    }

    /// Speak to a picker with `tls: {mode: Off}`.
    pub fn plaintext(mut self) -> anyhow::Result<Self> {
        let cluster = self.cluster("picker")?.as_mapping_mut().context("cluster")?;
        cluster.remove("transport_socket");
        Ok(self)
    }

    /// Other body modes, for request and response alike, trailers skipped.
    pub fn body_mode(mut self, mode: BodyMode) -> anyhow::Result<Self> {
        let name = match mode {
            BodyMode::Streamed => "STREAMED",
            BodyMode::HeadersOnly => "NONE",
        };
        let processing = walk(self.ext_proc()?, &["processing_mode"])?;
        for key in ["request_body_mode", "response_body_mode"] {
            *walk(processing, &[key])? = name.into();
        }
        for key in ["request_trailer_mode", "response_trailer_mode"] {
            *walk(processing, &[key])? = "SKIP".into();
        }
        Ok(self)
    }

    /// The same gateway without a picker: requests go to these engines in turn.
    pub fn without_picker(mut self, engines: &[SocketAddr]) -> anyhow::Result<Self> {
        let manager = self.connection_manager()?;
        let filters = walk(manager, &["http_filters"])?;
        filters
            .as_sequence_mut()
            .context("http_filters")?
            .retain(|filter| filter["name"].as_str() != Some("envoy.filters.http.ext_proc"));
        let routes = walk(manager, &["route_config", "virtual_hosts", "0", "routes"])?;
        let routes = routes.as_sequence_mut().context("routes")?;
        routes.truncate(1);
        let first = walk(routes.first_mut().context("no route")?, &["match"])?;
        first.as_mapping_mut().context("match")?.remove("headers");
        let clusters = self.at(&["static_resources", "clusters"])?;
        clusters
            .as_sequence_mut()
            .context("clusters")?
            .retain(|cluster| cluster["name"].as_str() != Some("picker"));
        let hosts = engines.iter().map(|engine| {
            let (ip, port) = (engine.ip(), engine.port());
            yaml(&format!(
                "{{endpoint: {{address: {{socket_address: {{address: \"{ip}\", port_value: {port}}}}}}}}}"
            ))
        });
        let mut assignment = yaml("{cluster_name: engines, endpoints: [{}]}")?;
        let hosts = Value::Sequence(hosts.collect::<anyhow::Result<_>>()?);
        walk(&mut assignment, &["endpoints", "0"])?
            .as_mapping_mut()
            .context("endpoints")?
            .insert("lb_endpoints".into(), hosts);
        let cluster = self.cluster("engines")?.as_mapping_mut().context("cluster")?;
        cluster.remove("original_dst_lb_config");
        cluster.insert("type".into(), "STATIC".into());
        cluster.insert("lb_policy".into(), "ROUND_ROBIN".into());
        cluster.insert("load_assignment".into(), assignment);
        Ok(self)
    }

    /// HTTP/1 trailers pass (Envoy drops them otherwise).
    pub fn trailers(mut self) -> anyhow::Result<Self> {
        let manager = self
            .connection_manager()?
            .as_mapping_mut()
            .context("connection manager")?;
        manager.insert("http_protocol_options".into(), yaml("{enable_trailers: true}")?);
        let cluster = self.cluster("engines")?;
        let options = walk(cluster, &["typed_extension_protocol_options"])?;
        let options = walk(
            options,
            &[
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config",
            ],
        )?;
        *walk(options, &["http_protocol_options"])? = yaml("{enable_trailers: true}")?;
        Ok(self)
    }

    /// Two filters in front of the picker's turn a request header into a subset hint: `x-subset`, a string, and
    /// `x-subset-list`, a base64-encoded `google.protobuf.Value`.
    pub fn subset_from_header(mut self) -> anyhow::Result<Self> {
        let on_present =
            "metadata_namespace: envoy.lb.subset_hint, key: x-gateway-destination-endpoint-subset";
        let filter = yaml(&format!(
            r#"
name: envoy.filters.http.header_to_metadata
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
  request_rules:
  - {{header: x-subset, on_header_present: {{{on_present}, type: STRING}}}}
  - {{header: x-subset-list, on_header_present: {{{on_present}, type: PROTOBUF_VALUE, encode: BASE64}}}}
"#
        ))?;
        let filters = walk(self.connection_manager()?, &["http_filters"])?;
        filters
            .as_sequence_mut()
            .context("http_filters")?
            .insert(0, filter);
        let forwarding = yaml("{forwarding_namespaces: {untyped: [envoy.lb.subset_hint]}}")?;
        let ext_proc = self.ext_proc()?.as_mapping_mut().context("ext_proc")?;
        ext_proc.insert("metadata_options".into(), forwarding);
        Ok(self)
    }

    /// Where clients go.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// The file's text.
    pub fn yaml(&self) -> anyhow::Result<String> {
        Ok(serde_yaml::to_string(&self.root)?)
    }

    fn at(&mut self, path: &[&str]) -> anyhow::Result<&mut Value> {
        walk(&mut self.root, path)
    }

    fn listener(&mut self) -> anyhow::Result<&mut Value> {
        self.at(&["static_resources", "listeners", "0"])
    }

    fn connection_manager(&mut self) -> anyhow::Result<&mut Value> {
        walk(
            self.listener()?,
            &["filter_chains", "0", "filters", "0", "typed_config"],
        )
    }

    fn ext_proc(&mut self) -> anyhow::Result<&mut Value> {
        let filters = walk(self.connection_manager()?, &["http_filters"])?;
        walk(named(filters, "envoy.filters.http.ext_proc")?, &["typed_config"])
    }

    fn cluster(&mut self, name: &str) -> anyhow::Result<&mut Value> {
        named(self.at(&["static_resources", "clusters"])?, name)
    }
}

fn yaml(text: &str) -> anyhow::Result<Value> {
    Ok(serde_yaml::from_str(text)?)
}

fn walk<'a>(value: &'a mut Value, path: &[&str]) -> anyhow::Result<&'a mut Value> {
    let mut here = value;
    for step in path {
        here = match step.parse::<usize>() {
            Ok(index) => here.get_mut(index),
            Err(_) => here.get_mut(*step),
        }
        .with_context(|| format!("the shipped Envoy configuration has no {step:?} in {path:?}"))?;
    }
    Ok(here)
}

fn named<'a>(list: &'a mut Value, name: &str) -> anyhow::Result<&'a mut Value> {
    let list = list.as_sequence_mut().context("not a list")?;
    let found = list
        .iter_mut()
        .find(|item| item.get("name").and_then(Value::as_str) == Some(name));
    found.with_context(|| format!("the shipped Envoy configuration has no {name:?}"))
}

fn set_address(slot: &mut Value, address: SocketAddr) -> anyhow::Result<()> {
    let mut socket = Mapping::new();
    socket.insert("address".into(), address.ip().to_string().into());
    socket.insert("port_value".into(), address.port().into());
    *walk(slot, &["socket_address"])? = Value::Mapping(socket);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(plug: Plug) -> EnvoyConfig {
        let [listen, admin, picker] =
            [1, 2, 3].map(|n| SocketAddr::from(([127, 1, 1, n], 1000 + u16::from(n))));
        EnvoyConfig::shipped(plug, listen, admin, picker, 9).unwrap()
    }

    #[test]
    fn only_addresses_differ_from_the_shipped_files() {
        for (plug, shipped) in [(Plug::Light, LIGHT), (Plug::Full, FULL)] {
            let shipped: Value = serde_yaml::from_str(shipped).unwrap();
            let shipped = serde_yaml::to_string(&shipped).unwrap();
            let ours = config(plug).yaml().unwrap();
            let differing: Vec<_> = shipped
                .lines()
                .zip(ours.lines())
                .filter(|(a, b)| a != b)
                .map(|(_, b)| b.trim())
                .collect();
            assert_eq!(shipped.lines().count(), ours.lines().count());
            assert!(
                differing
                    .iter()
                    .all(|line| line.contains("address:") || line.contains("port_value:"))
            );
            assert_eq!(differing.len(), 7, "{differing:?}");
        }
    }

    #[test]
    fn without_a_picker_nothing_asks_it_and_requests_find_the_engines() {
        let engines = [[127, 1, 2, 1], [127, 1, 2, 2]].map(|ip| SocketAddr::from((ip, 8_000)));
        for plug in [Plug::Light, Plug::Full] {
            let text = config(plug).without_picker(&engines).unwrap().yaml().unwrap();
            assert!(!text.contains("filters.http.ext_proc") && !text.contains("name: picker"));
            assert!(!text.contains("direct_response") && !text.contains("present_match"));
            assert!(text.contains("ROUND_ROBIN") && !text.contains("ORIGINAL_DST"));
            assert!(
                engines
                    .iter()
                    .all(|engine| text.contains(&engine.ip().to_string()))
            );
        }
    }

    #[test]
    fn every_variant_finds_what_it_changes() {
        for plug in [Plug::Light, Plug::Full] {
            let config = config(plug)
                .plaintext()
                .unwrap()
                .trailers()
                .unwrap()
                .subset_from_header()
                .unwrap();
            config.clone().body_mode(BodyMode::Streamed).unwrap();
            let text = config.body_mode(BodyMode::HeadersOnly).unwrap().yaml().unwrap();
            assert!(text.contains("request_body_mode: NONE") && !text.contains("tls.v3"));
        }
    }
}
