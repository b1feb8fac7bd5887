//! The endpoints file: what serves, where its events come from.

use std::{collections::HashSet, net::SocketAddr, path::Path};

use serde::Deserialize;

use crate::{ConfigError, raw::address};

/// The endpoints file, validated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointsFile {
    /// One for each address and rank, in the file's order.
    pub endpoints: Vec<EndpointEntry>,
}

/// One address that serves requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EndpointEntry {
    /// Where the proxy sends requests.
    #[serde(deserialize_with = "address")]
    pub address: SocketAddr,
    /// Model that it serves, by one of the names of a tokenizer group.
    pub model: String,
    /// PUB endpoint of its KV events; asked of the engine when absent.
    #[serde(default)]
    pub events: Option<String>,
    /// ROUTER endpoint for replay.
    #[serde(default)]
    pub replay: Option<String>,
    /// Data-parallel rank, when several share the address.
    #[serde(default)]
    pub rank: Option<u16>,
    /// Tokens per block; read from the engine when absent.
    #[serde(default)]
    pub block_size: Option<u32>,
    /// Changes when the engine's container restarted.
    #[serde(default)]
    pub incarnation: String,
    /// It takes no new requests.
    #[serde(default)]
    pub terminating: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawFile {
    endpoints: Option<Vec<EndpointEntry>>,
}

/// Most endpoints in one pool: an index slot is a `u16`.
const MOST: usize = 65_536;

impl EndpointsFile {
    /// Parses and validates. An empty list is a valid file (a pool scaled to zero).
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let RawFile { endpoints } =
            serde_yaml::from_str(text).map_err(|error| ConfigError::yaml(file, &error))?;
        let endpoints = endpoints.unwrap_or_default();
        if endpoints.len() > MOST {
            return Err(ConfigError::new(
                file,
                "endpoints",
                format!("has {} entries", endpoints.len()),
                format!("list at most {MOST}"),
            ));
        }
        let mut seen = HashSet::new();
        for (at, entry) in endpoints.iter().enumerate() {
            let field = |name: &str| format!("endpoints[{at}].{name}");
            if entry.model.trim().is_empty() {
                return Err(ConfigError::new(
                    file,
                    field("model"),
                    "is empty",
                    "write the name of the model that it serves",
                ));
            }
            if entry.address.port() == 0 || entry.address.ip().is_unspecified() {
                return Err(ConfigError::new(
                    file,
                    field("address"),
                    format!("{} cannot be connected to", entry.address),
                    "write the engine's own ip:port",
                ));
            }
            if entry.block_size == Some(0) {
                return Err(ConfigError::new(
                    file,
                    field("blockSize"),
                    "is 0",
                    "write the engine's tokens per block, or null to read it from the engine",
                ));
            }
            for (name, value) in [("events", &entry.events), ("replay", &entry.replay)] {
                if let Some(value) = value
                    && !is_tcp_endpoint(value)
                {
                    return Err(ConfigError::new(
                        file,
                        field(name),
                        format!("{value:?} is no ZeroMQ endpoint"),
                        "write tcp://host:port, for example \"tcp://10.0.0.7:5557\"",
                    ));
                }
            }
            if entry.replay.is_some() && entry.events.is_none() {
                return Err(ConfigError::new(
                    file,
                    field("replay"),
                    "is given without events",
                    "give events too, or neither to read both from the engine",
                ));
            }
            if !seen.insert((entry.address, entry.rank)) {
                return Err(ConfigError::new(
                    file,
                    field("address"),
                    format!("{} is listed twice", entry.address),
                    "remove one, or give each data-parallel rank its own rank",
                ));
            }
        }
        Ok(Self { endpoints })
    }
}

fn is_tcp_endpoint(text: &str) -> bool {
    let Some((host, port)) = text.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')) else {
        return false;
    };
    !host.is_empty() && host != "*" && port.parse::<u16>().is_ok_and(|port| port != 0)
}
