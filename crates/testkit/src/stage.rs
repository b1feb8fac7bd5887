//! Engines, picker and Envoy together, in a network and a folder of their own.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    admin::Admin,
    client::Client,
    engines::{Engines, EnginesOptions},
    envoy::{Envoy, EnvoyConfig, Plug},
    loopback::Loopback,
    picker::{Picker, PickerOptions},
};

/// Envoy's host number in the stage's network; engines begin at 1.
const ENVOY_HOST: u8 = 250;
const LISTEN: u16 = 8081;
const ENVOY_ADMIN: u16 = 9901;

/// What a stage is made of.
#[derive(Clone, Debug)]
pub struct StageOptions {
    /// The engines.
    pub engines: EnginesOptions,
    /// The picker.
    pub picker: PickerOptions,
    /// Which shipped Envoy configuration.
    pub plug: Plug,
}

impl StageOptions {
    /// Two quick engines, LMetric, the given plug.
    pub fn new(plug: Plug) -> Self {
        Self {
            engines: EnginesOptions::default(),
            picker: PickerOptions::default(),
            plug,
        }
    }

    /// `count` engines at `speed`, the picker's time constants scaled alike.
    #[must_use]
    pub fn fleet(mut self, count: u8, speed: f64) -> Self {
        self.engines.count = count;
        self.engines.speed = speed;
        self.picker.speed = speed;
        self
    }

    /// Engines and picker with the tokenizer in `folder`.
    #[must_use]
    pub fn tokenizer(mut self, folder: &Path) -> Self {
        self.engines.tokenizer = Some(folder.to_path_buf());
        self.picker.models = vec![(self.engines.model.clone(), folder.to_path_buf())];
        self
    }
}

/// Everything that a request passes. Dropped in this order: Envoy, picker, engines, files.
#[derive(Debug)]
pub struct Stage {
    /// The proxy.
    pub envoy: Envoy,
    /// The picker.
    pub picker: Picker,
    /// The engines.
    pub engines: Engines,
    options: StageOptions,
    folder: TempDir,
    net: Loopback,
}

impl Stage {
    /// Starts all three with a shipped Envoy configuration, and waits until each endpoint is ready.
    pub async fn start(options: StageOptions) -> anyhow::Result<Self> {
        Self::start_with(options, Ok).await
    }

    /// As [`Stage::start`], the Envoy configuration changed by `change`.
    pub async fn start_with(
        options: StageOptions,
        change: impl FnOnce(EnvoyConfig) -> anyhow::Result<EnvoyConfig>,
    ) -> anyhow::Result<Self> {
        let net = Loopback::lease()?;
        let folder = tempfile::Builder::new().prefix("lmetric-stage-").tempdir()?;
        let engines = Engines::start(&net, 1, options.engines.clone(), folder.path()).await?;
        let entries: Vec<Value> = (0..options.engines.count).map(|n| engines.entry(n)).collect();
        let picker = Picker::start(&net, &options.picker, &entries, folder.path()).await?;
        let config = change(Self::envoy_config(&net, options.plug, options.picker.plaintext)?)?;
        let envoy = Envoy::start(&config, folder.path()).await?;
        let stage = Self {
            envoy,
            picker,
            engines,
            options,
            folder,
            net,
        };
        stage.all_ready().await?;
        Ok(stage)
    }

    /// Waits until every engine is a ready endpoint of the picker.
    pub async fn all_ready(&self) -> anyhow::Result<()> {
        let count = usize::from(self.options.engines.count);
        self.admin()
            .ready_endpoints(count, std::time::Duration::from_secs(20))
            .await
    }

    /// The shipped configuration at this network's addresses.
    pub fn envoy_config(net: &Loopback, plug: Plug, plaintext: bool) -> anyhow::Result<EnvoyConfig> {
        let [ext_proc, health, _] = Picker::addresses(net);
        let [listen, admin] = [LISTEN, ENVOY_ADMIN].map(|port| net.at(ENVOY_HOST, port));
        let config = EnvoyConfig::shipped(plug, listen, admin, ext_proc, health.port())?;
        if plaintext { config.plaintext() } else { Ok(config) }
    }

    /// A client of Envoy.
    pub fn client(&self) -> Client {
        self.envoy.client()
    }

    /// The picker's admin port.
    pub fn admin(&self) -> Admin {
        self.picker.admin()
    }

    /// Model name of the engines.
    pub fn model(&self) -> &str {
        &self.options.engines.model
    }

    /// Where files and logs are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its network.
    pub fn net(&self) -> &Loopback {
        &self.net
    }
}
