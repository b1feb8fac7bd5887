//! Everything that a request passes: three Envoys, one of them without a picker, the picker, and the engines.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use lmetric_testkit::{Admin, Envoy, EnvoyConfig, Loopback, Picker, PickerOptions, Plug, eventually};
use tempfile::TempDir;

use super::{
    board::Board,
    chats::MODEL,
    engines::Engines,
    load::{Clients, Load},
    timer::Timer,
};
use crate::usage;

const LISTEN: u16 = 8_081;
const ENVOY_ADMIN: u16 = 9_901;
/// Host number of the first Envoy; engines begin at 1, the picker is at 251.
const ENVOYS: u8 = 240;
/// For everything to be ready, and for the ledger to become empty.
const PATIENCE: Duration = Duration::from_secs(30);
/// A scrape of each engine and its list of models, and the allocator's own tidying.
const SETTLE: Duration = Duration::from_secs(6);

/// Which way a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Through Envoy alone, to the engines in turn.
    Alone,
    /// `envoy/light.yaml`.
    Light,
    /// `envoy/full.yaml`.
    Full,
}

impl Mode {
    /// All.
    pub const ALL: [Self; 3] = [Self::Alone, Self::Light, Self::Full];
    /// Those with a picker.
    pub const PICKED: [Self; 2] = [Self::Light, Self::Full];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Light => "light",
            Self::Full => "full",
        }
    }
}

/// How the rig is built.
#[derive(Clone, Debug)]
pub struct RigOptions {
    /// Folder of the tokenizer.
    pub tokenizer: PathBuf,
    /// Engines behind the gateway without a picker.
    pub engines: u8,
    /// Engines in all, for the idle figure.
    pub most: u8,
    /// TLS between Envoy and picker, as the shipped files have it.
    pub tls: bool,
}

struct Gateway {
    envoy: Envoy,
    clients: Clients,
}

/// All processes. Dropped in this order.
pub struct Rig {
    gateways: Vec<Gateway>,
    picker: Picker,
    /// The engines, one thread of this process.
    pub engines: Engines,
    board: Arc<Board>,
    timer: Arc<Timer>,
    options: RigOptions,
    folder: TempDir,
    net: Loopback,
}

/// What one run took.
#[derive(Clone, Debug)]
pub struct Run {
    /// First byte of each answer, nanoseconds after the request was due.
    pub times: Vec<u64>,
    /// From the first request to the last answer.
    pub lasted: Duration,
    /// CPU time of its Envoy.
    pub envoy: Duration,
    /// CPU time of the picker.
    pub picker: Duration,
}

impl Rig {
    /// Starts all; the picker knows every engine.
    pub async fn start(options: RigOptions) -> anyhow::Result<Self> {
        let net = Loopback::lease()?;
        let folder = tempfile::Builder::new().prefix("lmetric-bench-").tempdir()?;
        let board = Arc::<Board>::default();
        let timer = Arc::new(Timer::start()?);
        let engines = Engines::start(&net, options.most, &board, &timer)?;
        let picker = picker(&net, &options, &engines, options.most, folder.path()).await?;
        let mut gateways = Vec::new();
        for mode in Mode::ALL {
            let config = config(&net, mode, &options, &engines)?;
            let own = folder.path().join(mode.name());
            std::fs::create_dir(&own)?;
            let envoy = Envoy::start_with(&config, &own, 1).await?;
            let clients = Clients::new(config.listen());
            gateways.push(Gateway { envoy, clients });
        }
        let rig = Self {
            gateways,
            picker,
            engines,
            board,
            timer,
            options,
            folder,
            net,
        };
        rig.ready(rig.options.most).await?;
        Ok(rig)
    }

    /// Ends the picker and starts another that knows only the engines which requests are meant for.
    pub async fn restart_picker(&mut self) -> anyhow::Result<()> {
        self.picker.stop(PATIENCE).await?;
        self.picker = picker(
            &self.net,
            &self.options,
            &self.engines,
            self.options.engines,
            self.folder.path(),
        )
        .await?;
        self.ready(self.options.engines).await
    }

    /// The picker's admin port.
    pub fn admin(&self) -> Admin {
        self.picker.admin()
    }

    /// Resident memory of the picker, bytes.
    pub fn memory(&mut self) -> anyhow::Result<u64> {
        usage::memory(self.picker.process_mut().id())
    }

    /// Waits until what a start and a load leave behind is over.
    pub async fn settle(&self) {
        tokio::time::sleep(SETTLE).await;
    }

    /// Cores that the picker uses when nobody asks for anything.
    pub async fn idle(&mut self, lasts: Duration) -> anyhow::Result<f64> {
        self.settle().await;
        let pid = self.picker.process_mut().id();
        let (before, started) = (usage::cpu(pid)?, Instant::now());
        tokio::time::sleep(lasts).await;
        let used = usage::cpu(pid)?.saturating_sub(before);
        Ok(used.as_secs_f64() / started.elapsed().as_secs_f64())
    }

    /// Sends a load one way and waits until nothing of it is left.
    pub async fn run(&mut self, mode: Mode, load: &Load) -> anyhow::Result<Run> {
        let picker = self.picker.process_mut().id();
        let gateway = &self.gateways[mode as usize];
        let envoy = gateway.envoy.process.id();
        let before = (usage::cpu(envoy)?, usage::cpu(picker)?);
        let started = Instant::now();
        let times = gateway.clients.send(load, &self.board, &self.timer).await;
        let times = times.with_context(|| format!("{} way", mode.name()))?;
        let run = Run {
            times,
            lasted: started.elapsed(),
            envoy: usage::cpu(envoy)?.saturating_sub(before.0),
            picker: usage::cpu(picker)?.saturating_sub(before.1),
        };
        self.admin().idle(PATIENCE).await?;
        Ok(run)
    }

    /// Whether what was measured was what it should be: every event stream whole, tokens from the tokenizer.
    pub async fn check(&self) -> anyhow::Result<()> {
        let admin = self.admin();
        for (address, endpoint) in admin.endpoints().await? {
            ensure!(
                endpoint.source == "live",
                "the KV events of {address} are {}, not live: the machine is too slow for this; give lower --rates",
                endpoint.source
            );
        }
        let all = admin.metric("lmetric_token_requests_total", "").await?;
        let own = admin
            .metric("lmetric_token_requests_total", "rung=\"tokenizer\"")
            .await?;
        ensure!(
            own >= 0.99 * all && own > 0.0,
            "tokens of {own} of {all} requests came from the tokenizer; the others were estimated, which costs less"
        );
        Ok(())
    }

    async fn ready(&self, endpoints: u8) -> anyhow::Result<()> {
        self.admin()
            .ready_endpoints(usize::from(endpoints), PATIENCE)
            .await?;
        for mode in Mode::PICKED {
            let envoy = &self.gateways[mode as usize].envoy;
            let healthy = || envoy.stat("cluster.picker.membership_healthy");
            eventually("Envoy to find the picker healthy", PATIENCE, healthy, |found| {
                *found == 1
            })
            .await?;
        }
        Ok(())
    }
}

async fn picker(
    net: &Loopback,
    options: &RigOptions,
    engines: &Engines,
    count: u8,
    folder: &Path,
) -> anyhow::Result<Picker> {
    let picker = PickerOptions {
        plaintext: !options.tls,
        models: vec![(MODEL.to_owned(), options.tokenizer.clone())],
        ..PickerOptions::default()
    };
    Picker::start(net, &picker, &engines.entries(usize::from(count)), folder).await
}

fn config(
    net: &Loopback,
    mode: Mode,
    options: &RigOptions,
    engines: &Engines,
) -> anyhow::Result<EnvoyConfig> {
    let host = ENVOYS + mode as u8;
    let [listen, admin] = [LISTEN, ENVOY_ADMIN].map(|port| net.at(host, port));
    let [ext_proc, health, _] = Picker::addresses(net);
    let plug = match mode {
        Mode::Alone | Mode::Light => Plug::Light,
        Mode::Full => Plug::Full,
    };
    let config = EnvoyConfig::shipped(plug, listen, admin, ext_proc, health.port())?;
    match (mode, options.tls) {
        (Mode::Alone, _) => config.without_picker(&engines.addresses(usize::from(options.engines))),
        (_, true) => Ok(config),
        (_, false) => config.plaintext(),
    }
}
