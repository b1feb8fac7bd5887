//! A running `lmetric-epp` with its configuration and endpoints file.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    admin::Admin,
    loopback::Loopback,
    process::{Process, Signal, Tool},
    wait::wait_until,
};

/// The picker's host number in its network.
const HOST: u8 = 251;

/// What differs from the picker's defaults.
#[derive(Clone, Debug)]
pub struct PickerOptions {
    /// Policy by name.
    pub policy: String,
    /// `tls: {mode: Off}`.
    pub plaintext: bool,
    /// Names and tokenizer folder of each tokenizer group.
    pub models: Vec<(String, PathBuf)>,
    /// Model seconds per real second.
    pub speed: f64,
    /// Count blocks of open reservations as held.
    pub overlay: bool,
    /// Further top-level fields of the configuration.
    pub more: Value,
}

impl Default for PickerOptions {
    fn default() -> Self {
        Self {
            policy: "lmetric".to_owned(),
            plaintext: false,
            models: Vec::new(),
            speed: 1.0,
            overlay: true,
            more: json!({}),
        }
    }
}

/// A picker that can be stopped and started again at the same addresses.
#[derive(Debug)]
pub struct Picker {
    process: Option<Process>,
    folder: PathBuf,
    admin: SocketAddr,
}

impl Picker {
    /// ext-proc, health and admin addresses in `net`.
    pub fn addresses(net: &Loopback) -> [SocketAddr; 3] {
        [9002, 9003, 9090].map(|port| net.at(HOST, port))
    }

    /// Writes its files into `folder`, starts it, and waits for `/readyz`.
    pub async fn start(
        net: &Loopback,
        options: &PickerOptions,
        endpoints: &[Value],
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let [ext_proc, health, admin] = Self::addresses(net);
        let mut config = json!({
            "listen": {"extProc": ext_proc, "health": health, "admin": admin},
            "tls": {"mode": if options.plaintext { "Off" } else { "SelfSigned" }},
            "policy": options.policy,
            "endpoints": {"file": "endpoints.yaml"},
            "models": options.models.iter()
                .map(|(name, folder)| json!({"names": [name], "tokenizer": folder}))
                .collect::<Vec<_>>(),
            "speed": options.speed,
            "overlay": options.overlay,
        });
        if let (Some(config), Some(more)) = (config.as_object_mut(), options.more.as_object()) {
            config.extend(more.clone());
        }
        std::fs::write(folder.join("picker.yaml"), serde_yaml::to_string(&config)?)?;
        let mut picker = Self {
            process: None,
            folder: folder.to_path_buf(),
            admin,
        };
        picker.list(endpoints)?;
        picker.start_again().await?;
        Ok(picker)
    }

    /// Rewrites the endpoints file, atomically.
    pub fn list(&self, endpoints: &[Value]) -> anyhow::Result<()> {
        let new = self.folder.join("endpoints.yaml.new");
        std::fs::write(&new, serde_yaml::to_string(&json!({"endpoints": endpoints}))?)?;
        std::fs::rename(new, self.folder.join("endpoints.yaml"))?;
        Ok(())
    }

    /// Starts it (again) and waits for `/readyz`.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        self.launch()?;
        let admin = self.admin();
        let process = self.process_mut();
        let ready = wait_until("the picker to be ready", Duration::from_secs(30), || {
            let ended = process.ended();
            let admin = admin.clone();
            async move {
                match (ended, admin.ready().await) {
                    (Some(status), _) => Err(format!("it ended: {status}")),
                    (None, Ok(true)) => Ok(()),
                    (None, Ok(false)) => Err("not ready".to_owned()),
                    (None, Err(error)) => Err(format!("{error:#}")),
                }
            }
        });
        if let Err(error) = ready.await {
            anyhow::bail!("{error}\n{}", self.process_mut().tail(3_000));
        }
        Ok(())
    }

    /// Starts it without waiting.
    pub fn launch(&mut self) -> anyhow::Result<()> {
        let args = ["--config", "picker.yaml"];
        self.process = Some(Process::start(
            "lmetric-epp",
            &Tool::Picker.path()?,
            args,
            &self.folder,
        )?);
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// SIGTERM; its drain begins.
    pub fn terminate(&self) {
        if let Some(process) = &self.process {
            process.signal(Signal::TERM);
        }
    }

    /// SIGTERM, then waits for its end.
    pub async fn stop(&mut self, limit: Duration) -> anyhow::Result<std::process::ExitStatus> {
        self.terminate();
        self.process_mut().wait(limit).await
    }

    /// Its process, started or ended.
    ///
    /// # Panics
    /// After [`Picker::kill`] and before it is started again.
    pub fn process_mut(&mut self) -> &mut Process {
        self.process
            .as_mut()
            .expect("the picker was killed and not started again")
    }

    /// Address of its admin port.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    /// A client of its admin port.
    pub fn admin(&self) -> Admin {
        Admin::new(self.admin)
    }
}
