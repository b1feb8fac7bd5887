//! Wiring: build everything, bind, serve, drain.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use lmetric_api::{ConfigError, Hotspot, Listen, PageAccess, PickerConfig, Policy};
use lmetric_engine::{EngineConfig, Gpu, Model, SimulatedSteps};
use lmetric_prefix::{KeySeed, SharedIndex};
use lmetric_scheduler::{EngineModel, HotspotAction, Scheduler, SchedulerConfig, ShadowConfig};
use lmetric_telemetry::{Admin, Ended, Logs, Readiness, Tasks, termination};
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    clock::Clock,
    discovery::Discovery,
    events::IndexSink,
    fleet::{Fleet, FleetParts, Groups, Reconciler, ZmqSources},
    health::Health,
    housekeeping::{Housekeeping, Starting},
    load::Loaded,
    metrics::{Export, PlaceMetrics, RecordMetrics, ReloadMetrics, ScrapeMetrics, Shadow, Streams},
    picker::{Picker, PickerParts},
    record::Recorder,
    reload::{Reload, ReloadParts, ReloadStatus},
    scrape::{EngineClient, ModelsReader, ScrapeSettings},
    server::{Drain, ExtProcServer},
    stream::Limits,
    tokenizers::{
        Pauses, Tokenizers, TokenizersParts,
        hub::{Cache, Environment, Hub},
    },
    tokens::{EngineTokens, Ladder, Pool},
};

/// Replays that may run at once: each holds up its engine's publisher.
const REPLAYS: usize = 4;
/// Requests that may ask engines for tokens at once.
const ENGINE_TOKENS: usize = 64;
/// Decisions kept for `lmetric explain`.
const DECISIONS: usize = 1_000;
/// A picker that was told to stop goes on at least this long, so that health checks have seen it (unless
/// `limits.drain` is shorter).
const LINGER: Duration = Duration::from_secs(1);
/// For tasks to end after the drain.
const GOODBYE: Duration = Duration::from_secs(5);

/// Runs the picker until it is told to stop. The configuration was checked by [`crate::load::load`].
pub async fn run(loaded: Loaded, logs: Logs) -> anyhow::Result<()> {
    let Loaded {
        config,
        file,
        discovery,
        pods,
        access,
        groups,
        tls,
        written,
        conformance,
    } = loaded;
    let clock = Clock::start();
    let seed = KeySeed::new(rand::random());
    let (tasks, ended) = Tasks::new();
    let mut registry = lmetric_telemetry::registry();
    let place_metrics = PlaceMetrics::new(&mut registry);
    let scrape_metrics = ScrapeMetrics::new(&mut registry);
    let readiness = Readiness::default();
    let client = EngineClient::default();
    let settings = ScrapeSettings::new(config.scrape, config.speed);

    let index = Arc::new(SharedIndex::default());
    let scheduler = Arc::new(Scheduler::new(scheduler_config(&config), index.clone()));
    let fleet = Arc::new(Fleet::new(FleetParts {
        scheduler: scheduler.clone(),
        sink: Arc::new(IndexSink::new(index.clone(), scheduler.clone(), clock)),
        starter: Arc::new(ZmqSources::new(REPLAYS, tasks.token().child_token())),
        clock,
        seed,
        topic: config.events.topic.clone(),
        models: ModelsReader {
            client: client.clone(),
            settings: settings.clone(),
        },
        pods,
    }));
    let ladder = Arc::new(Ladder::new(
        groups,
        Pool::new(config.tokens.threads, config.tokens.queue)
            .context("cannot start the tokenizer's threads")?,
        EngineTokens::new(client.clone(), ENGINE_TOKENS),
        config.tokens,
        place_metrics.clone(),
    ));
    let names = Groups::new(&config.models);
    let cache = config.tokenizer_cache.clone().unwrap_or_else(Cache::default_root);
    let mut tokenizers = Tokenizers::new(TokenizersParts {
        ladder: ladder.clone(),
        hub: Hub::new(Cache::new(&cache), Environment::read()),
        tasks: tasks.clone(),
        pauses: Pauses::default(),
    });
    tokenizers.set(&config.models);
    registry.register_collector(Box::new(tokenizers.states()));
    let (recorder, writer) = Recorder::new(&config.record, config.speed, scheduler.clone(), || {
        RecordMetrics::new(&mut registry)
    })
    .unzip();
    let status = ReloadStatus::new(&file, written.is_some());
    let picker = Arc::new(Picker::new(PickerParts {
        scheduler: scheduler.clone(),
        fleet: fleet.clone(),
        groups: names.clone(),
        ladder: ladder.clone(),
        seed,
        clock,
        metrics: place_metrics.clone(),
        record: recorder,
    }));
    registry.register_collector(Box::new(Shadow(scheduler.clone())));
    registry.register_collector(Box::new(Export {
        scheduler: scheduler.clone(),
        index,
        fleet: fleet.clone(),
        clock,
    }));
    let starting = Starting::new(readiness.clone(), fleet.clone());

    let limits = Limits {
        body_bytes: config.limits.body_bytes,
        ..Limits::default()
    };
    let health = Health::new().await;
    let mut server = ExtProcServer::new(picker, limits, tls, health.clone());
    if conformance {
        tracing::warn!("requests may choose their engine by a header, for the conformance suite");
        server = server.for_conformance();
    }
    registry.register_collector(Box::new(Streams(server.stats())));
    let pages = admin::Pages {
        scheduler: scheduler.clone(),
        fleet: fleet.clone(),
        ladder: ladder.clone(),
        clock,
    };
    let Listen {
        ext_proc,
        ext_proc_tls,
        health: health_address,
        admin: admin_address,
    } = config.listen;
    let ext_proc = bind(&file, "listen.extProc", ext_proc).await?;
    let secure = match ext_proc_tls {
        Some(address) => Some(bind(&file, "listen.extProcTls", address).await?),
        None => None,
    };
    let health_listener = bind(&file, "listen.health", health_address).await?;
    let admin = bind(&file, "listen.admin", admin_address).await?;
    let listening = Listen {
        ext_proc: ext_proc.local_addr()?,
        ext_proc_tls: secure.as_ref().map(TcpListener::local_addr).transpose()?,
        health: health_listener.local_addr()?,
        admin: admin.local_addr()?,
    };
    let status_pages = admin::StatusPages {
        tokenizers: tokenizers.states(),
        config: status.clone(),
    };
    let reload = written.map(|written| {
        let parts = ReloadParts {
            scheduler: scheduler.clone(),
            logs: logs.clone(),
            limits: server.live_limits(),
            groups: names.clone(),
            tokenizers,
            ladder: ladder.clone(),
            scrape: settings.clone(),
            status,
        };
        Reload::new(written, config.clone(), parts, ReloadMetrics::new(&mut registry))
    });
    let live = admin::LiveParts {
        pages: pages.clone(),
        readiness: readiness.clone(),
        speed: config.speed,
        access: config.page,
        tasks: tasks.clone(),
    };
    let routes = admin::router(pages)
        .merge(admin::live_router(live))
        .merge(admin::drain_router(fleet.clone()))
        .merge(admin::shadow_router(scheduler.clone()))
        .merge(admin::status_router(status_pages));
    let admin = Admin::new(admin, registry, readiness.clone(), logs, routes);

    let (sets, endpoints) = watch::channel(None);
    let reconciler = Reconciler::new(
        fleet.clone(),
        names,
        tasks.clone(),
        client,
        settings,
        scrape_metrics,
    );
    let housekeeping = Housekeeping {
        fleet,
        scheduler,
        ladder,
        metrics: place_metrics,
        speed: config.speed,
    };
    tasks.spawn("discovery", |token| discovery.run(sets, token));
    let for_reconciler = endpoints.clone();
    tasks.spawn("reconcile", |token| reconciler.run(for_reconciler, token));
    if let Some(reload) = reload {
        tasks.spawn("reload", |token| reload.run(token));
    }
    tasks.spawn("housekeeping", |token| housekeeping.run(token));
    if let Some(writer) = writer {
        tasks.spawn("record", |token| writer.run(token));
    }
    tasks.spawn("starting", |token| starting.run(endpoints, token));
    tasks.spawn("admin", |token| async move {
        if let Err(error) = admin.serve(token).await {
            tracing::error!(%error, "the admin server failed");
        }
    });
    let ready = readiness.subscribe();
    let reported = health.clone();
    let told = readiness.clone();
    tasks.spawn("access", |token| access.report(told, token));
    tasks.spawn("readiness", |token| report(reported, ready, token));
    tasks.spawn("health", |token| async move {
        let connections = TcpListenerStream::new(health_listener);
        if let Err(error) = health.serve(connections, token).await {
            tracing::error!(%error, "the health server failed");
        }
    });
    if let Some(secure) = secure {
        server = server.with_tls_on(secure);
    }
    // the server ends by its own drain, before the rest
    let stop = CancellationToken::new();
    let drain = Drain {
        linger: LINGER,
        limit: config.limits.drain,
    };
    let mut serving = tokio::spawn(server.serve(ext_proc, stop.clone(), drain));
    tracing::info!(
        policy = config.policy.name(),
        ext_proc = %listening.ext_proc,
        ext_proc_tls = listening.ext_proc_tls.map(tracing::field::display),
        health = %listening.health,
        admin = %listening.admin,
        page = page_at(config.page, listening.admin).map(tracing::field::display),
        "the picker serves"
    );
    let signal = tokio::select! {
        told = until_told(ended) => told?,
        ended = &mut serving => match ended {
            Ok(Ok(())) => bail!("the ext-proc server ended although nobody told it to"),
            Ok(Err(error)) => return Err(error).context("the ext-proc server failed"),
            Err(error) => return Err(error).context("the ext-proc server panicked"),
        },
    };
    readiness.block("draining", "the picker was told to stop");
    tracing::info!(signal, "told to stop");
    stop.cancel();
    if let Err(error) = serving.await.context("the ext-proc server panicked")? {
        tracing::warn!(%error, "the ext-proc server ended with an error");
    }
    if !tasks.shut_down(GOODBYE).await {
        tracing::warn!("some tasks did not end within {GOODBYE:?} and are left behind");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Where a person finds the live page.
fn page_at(access: PageAccess, admin: SocketAddr) -> Option<String> {
    let ip = admin.ip();
    let is_shown = match access {
        PageAccess::Loopback => ip.is_loopback() || ip.is_unspecified(),
        PageAccess::Anyone => true,
        PageAccess::Off => false,
    };
    let host = if ip.is_unspecified() {
        format!("localhost:{}", admin.port())
    } else {
        admin.to_string()
    };
    is_shown.then(|| format!("http://{host}/"))
}

/// The signal that tells the process to stop; an error when a task ended that should not have.
async fn until_told(mut ended: Ended) -> anyhow::Result<&'static str> {
    tokio::select! {
        signal = termination() => signal.context("cannot listen for signals"),
        name = ended.first() => bail!("the {name} task ended although it should run as long as the picker"),
    }
}

/// Tells health checks what readiness says.
async fn report(health: Health, mut ready: watch::Receiver<bool>, token: CancellationToken) {
    loop {
        let now = *ready.borrow_and_update();
        health.set_ready(now).await;
        tokio::select! {
            () = token.cancelled() => return,
            changed = ready.changed() => if changed.is_err() { return },
        }
    }
}

/// The scheduler's part of the configuration.
pub(crate) fn scheduler_config(config: &PickerConfig) -> SchedulerConfig {
    SchedulerConfig {
        policy: config.policy,
        engine: engine_model(config.policy),
        shadow: config.shadow.map(|policy| ShadowConfig {
            policy,
            engine: engine_model(policy),
        }),
        hotspot: match config.hotspot {
            Hotspot::Filter => HotspotAction::Filter,
            Hotspot::LoadOnly => HotspotAction::LoadOnly,
            Hotspot::Off => HotspotAction::Off,
        },
        default_rate: config.prefill_rate,
        overlay: config.overlay,
        decisions: DECISIONS,
        speed: config.speed,
    }
}

/// vLLM's default share of the GPU's memory; the model's step times do not depend on it.
const MEMORY_SHARE: f64 = 0.9;

/// The step times that the policy asks for; none where it needs none or names no engine.
fn engine_model(policy: Policy) -> Option<EngineModel> {
    let engine = policy.engine()?;
    let model = Model::profile(engine.model.profile()?)?;
    let gpu = Gpu::profile(engine.gpu.profile())?;
    let config = EngineConfig::new(gpu, model, MEMORY_SHARE);
    Some(EngineModel::new(SimulatedSteps::new(&config)))
}

async fn bind(file: &Path, field: &str, address: SocketAddr) -> Result<TcpListener, ConfigError> {
    TcpListener::bind(address).await.map_err(|error| {
        ConfigError::new(
            file,
            field,
            format!("cannot listen on {address} ({error})"),
            "stop who listens there, or write another ip:port of this machine",
        )
    })
}
