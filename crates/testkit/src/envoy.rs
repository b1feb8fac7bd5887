//! The shipped Envoy configurations, moved to a stage's addresses, and a running Envoy.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::Context;
use serde_yaml::{Mapping, Value};

use crate::{
    client::Client,
    process::{Process, Tool},
    wait::wait_until,
};

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

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    /// Its process.
    pub process: Process,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts it and waits until it accepts requests.
    pub async fn start(config: &EnvoyConfig, folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join("envoy.yaml");
        std::fs::write(&file, config.yaml()?)?;
        let file = file.to_string_lossy();
        let args = [
            "-c",
            &file,
            "--concurrency",
            "2",
            "--disable-hot-restart",
            "--log-level",
            "warning",
        ];
        let mut process = Process::start("envoy", &Tool::Envoy.path()?, args, folder)?;
        let admin = Client::new(config.admin);
        let ready = wait_until("envoy to be ready", Duration::from_secs(20), || {
            let ended = process.ended();
            let admin = admin.clone();
            async move {
                match (ended, admin.get("/ready").await) {
                    (Some(status), _) => Err(format!("it ended: {status}")),
                    (None, Ok(answer)) if answer.status.is_success() => Ok(()),
                    (None, Ok(answer)) => Err(answer.text()),
                    (None, Err(error)) => Err(format!("{error:#}")),
                }
            }
        });
        if let Err(error) = ready.await {
            anyhow::bail!("{error}\n{}", process.tail(2_000));
        }
        Ok(Self {
            process,
            listen: config.listen,
            admin: config.admin,
        })
    }

    /// A client of its listener.
    pub fn client(&self) -> Client {
        Client::new(self.listen)
    }

    /// One counter or gauge, by its full name.
    pub async fn stat(&self, name: &str) -> anyhow::Result<u64> {
        let answer = Client::new(self.admin)
            .get(&format!("/stats?filter=^{name}$"))
            .await?
            .text();
        let value = answer
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(value
            .with_context(|| format!("envoy has no statistic {name}"))?
            .trim()
            .parse()?)
    }
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
