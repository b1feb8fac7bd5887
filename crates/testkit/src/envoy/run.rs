//! A running Envoy.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::Context;

use super::EnvoyConfig;
use crate::{
    client::Client,
    process::{Process, Tool},
    wait::wait_until,
};

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    /// Its process.
    pub process: Process,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts it with two workers and waits until it accepts requests.
    pub async fn start(config: &EnvoyConfig, folder: &Path) -> anyhow::Result<Self> {
        Self::start_with(config, folder, 2).await
    }

    /// Starts it with so many workers and waits until it accepts requests.
    pub async fn start_with(config: &EnvoyConfig, folder: &Path, workers: u16) -> anyhow::Result<Self> {
        let file = folder.join("envoy.yaml");
        std::fs::write(&file, config.yaml()?)?;
        let file = file.to_string_lossy();
        let workers = workers.to_string();
        let args = [
            "-c",
            &file,
            "--concurrency",
            &workers,
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
