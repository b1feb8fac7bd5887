//! `--kv-events-config`.

use serde::Deserialize;

use crate::args::Args;

/// vLLM's `KVEventsConfig`, with its defaults.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsConfig {
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: String,
    replay_endpoint: Option<String>,
    buffer_steps: u32,
    hwm: u64,
    max_queue_size: u64,
    topic: String,
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            enable_kv_cache_events: false,
            publisher: None,
            endpoint: "tcp://*:5557".to_owned(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: 100_000,
            max_queue_size: 100_000,
            topic: String::new(),
        }
    }
}

impl EventsConfig {
    pub(super) fn read(json: &str) -> Result<Self, String> {
        let config: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        port(&config.endpoint)?;
        if let Some(replay) = &config.replay_endpoint {
            port(replay)?;
        }
        match config.publisher.as_deref() {
            None | Some("zmq" | "null") => Ok(config),
            Some(other) => Err(format!("unknown publisher {other:?}: give zmq or null")),
        }
    }

    /// Without a replay endpoint the replay socket gets a port that nobody knows.
    pub(super) fn set(self, args: &mut Args) {
        args.no_kv_events = !self.enable_kv_cache_events || self.publisher.as_deref() == Some("null");
        args.kv_port = port(&self.endpoint).unwrap_or(args.kv_port);
        args.replay_port = self
            .replay_endpoint
            .and_then(|endpoint| port(&endpoint).ok())
            .unwrap_or(0);
        args.buffer_steps = self.buffer_steps;
        args.topic = self.topic;
    }
}

fn port(endpoint: &str) -> Result<u16, String> {
    endpoint
        .strip_prefix("tcp://")
        .and_then(|rest| rest.rsplit_once(':'))
        .and_then(|(_, port)| port.parse().ok())
        .ok_or_else(|| format!("{endpoint:?} is no endpoint: give one such as tcp://*:5557"))
}
