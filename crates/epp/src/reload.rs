//! A configuration that changes while the picker runs.
//!
//! Policy, shadow, detector, rates, log filter, limits, models and their tokenizers, tokenizing, scraping and the endpoints'
//! selection change at once. What is bound at start (ports, certificate, the event topic, the speed, the cache's place, who may
//! see the live page) waits for a restart, as the recording does, and a log line and `/debug/config` say so; the operator
//! restarts pickers for these by itself. A
//! bad configuration changes nothing, and is told of until a good one comes.

mod status;

use std::{path::PathBuf, pin::Pin, sync::Arc};

use futures::{Stream, StreamExt};
use lmetric_api::{ConfigError, Endpoints, PickerConfig, PodEndpoints};
use lmetric_scheduler::Scheduler;
use lmetric_telemetry::Logs;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use status::{ConfigStatus, ReloadStatus};

use crate::{
    args::Args, fleet::Groups, load::settle, metrics::ReloadMetrics, run::scheduler_config,
    scrape::ScrapeSettings, server::LiveLimits, tokenizers::Tokenizers, tokens::Ladder,
};

/// The configuration as somebody writes it, again and again.
pub struct Written {
    /// Its name in messages.
    pub file: PathBuf,
    /// What is written; the first is what the picker started with, or newer.
    pub texts: Pin<Box<dyn Stream<Item = String> + Send>>,
    /// Flags, which stand above it.
    pub args: Args,
    /// Whom to tell of the endpoints' settings.
    pub settings: watch::Sender<PodEndpoints>,
}

/// What a new configuration changes.
pub struct ReloadParts {
    /// Policy and detector.
    pub scheduler: Arc<Scheduler>,
    /// The filter.
    pub logs: Logs,
    /// Limits of the ext-proc server.
    pub limits: LiveLimits,
    /// Tokenizer groups by name.
    pub groups: Groups,
    /// Their tokenizers.
    pub tokenizers: Tokenizers,
    /// Who tokenizes.
    pub ladder: Arc<Ladder>,
    /// How engines are read.
    pub scrape: ScrapeSettings,
    /// Where it stands, for the page.
    pub status: ReloadStatus,
}

/// Takes over what is written.
pub struct Reload {
    written: Written,
    /// What is in force.
    running: PickerConfig,
    parts: ReloadParts,
    metrics: ReloadMetrics,
}

/// What a new configuration came to: fields by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In force now.
    pub changed: Vec<&'static str>,
    /// In force after a restart.
    pub waiting: Vec<&'static str>,
}

impl Reload {
    /// `running` is what the picker was started with, flags included.
    pub fn new(written: Written, running: PickerConfig, parts: ReloadParts, metrics: ReloadMetrics) -> Self {
        Self {
            written,
            running,
            parts,
            metrics,
        }
    }

    /// Follows the configuration until `token` is cancelled.
    pub async fn run(mut self, token: CancellationToken) {
        let mut last = None;
        loop {
            let text = tokio::select! {
                () = token.cancelled() => return,
                text = self.written.texts.next() => text,
            };
            let Some(text) = text else {
                token.cancelled().await;
                return;
            };
            // a label was changed, or the watch began anew
            if last.as_ref() == Some(&text) {
                continue;
            }
            match self.take(&text) {
                Ok(Taken { changed, waiting }) => {
                    self.metrics.applied(!changed.is_empty());
                    self.parts.status.taken(!changed.is_empty(), &waiting);
                    if !changed.is_empty() {
                        tracing::info!(?changed, "the configuration changed");
                    }
                    if !waiting.is_empty() {
                        tracing::warn!(
                            ?waiting,
                            "a change of the configuration waits for the picker's restart"
                        );
                    }
                }
                Err(error) => {
                    self.metrics.refused();
                    self.parts.status.refused(error.to_string());
                    tracing::error!(%error, "the new configuration is bad; the last good one stays");
                }
            }
            last = Some(text);
        }
    }

    /// Takes over a new configuration, whole or not at all.
    pub fn take(&mut self, text: &str) -> Result<Taken, ConfigError> {
        let (new, endpoints) = settle(&self.written.args, text, &self.written.file)?;
        let PickerConfig {
            listen,
            tls,
            policy,
            shadow,
            hotspot,
            record,
            endpoints: _,
            models,
            tokenizer_cache,
            tokens,
            scrape,
            events,
            limits,
            prefill_rate,
            speed,
            overlay,
            page,
            log,
        } = new;
        let mut taken = Taken::default();
        let running = &mut self.running;
        for (field, differs) in [
            ("listen", listen != running.listen),
            ("tls", tls != running.tls),
            ("tokenizerCache", tokenizer_cache != running.tokenizer_cache),
            ("events", events != running.events),
            ("record", record != running.record),
            ("speed", speed != running.speed),
            ("page", page != running.page),
        ] {
            if differs {
                taken.waiting.push(field);
            }
        }
        let placing = [
            ("policy", policy != running.policy),
            ("shadow", shadow != running.shadow),
            ("hotspot", hotspot != running.hotspot),
            ("prefillRate", prefill_rate != running.prefill_rate),
            ("overlay", overlay != running.overlay),
        ];
        if placing.iter().any(|(_, differs)| *differs) {
            running.policy = policy;
            running.shadow = shadow;
            running.hotspot = hotspot;
            running.prefill_rate = prefill_rate;
            running.overlay = overlay;
            self.parts.scheduler.reconfigure(scheduler_config(running));
            taken.changed.extend(
                placing
                    .iter()
                    .filter(|(_, differs)| *differs)
                    .map(|(field, _)| *field),
            );
        }
        if log != running.log && self.parts.logs.set(&log).is_ok() {
            running.log = log;
            taken.changed.push("log");
        }
        if limits != running.limits {
            running.limits = limits;
            if !self.parts.limits.set(limits.body_bytes, limits.drain) {
                taken.waiting.push("limits.bodyBytes");
            }
            taken.changed.push("limits");
        }
        if models != running.models {
            self.parts.groups.set(&models);
            self.parts.tokenizers.set(&models);
            running.models = models;
            taken.changed.push("models");
        }
        if tokens != running.tokens {
            match self.parts.ladder.configure(tokens) {
                Ok(()) => {
                    running.tokens = tokens;
                    taken.changed.push("tokens");
                }
                Err(error) => {
                    tracing::error!(%error, "the tokenizer's threads cannot be started");
                    taken.waiting.push("tokens");
                }
            }
        }
        if scrape != running.scrape {
            self.parts.scrape.set(scrape, running.speed);
            running.scrape = scrape;
            taken.changed.push("scrape");
        }
        match endpoints {
            Endpoints::Kubernetes(pods) => {
                let changed = self.written.settings.send_if_modified(|settings| {
                    let differs = *settings != pods;
                    *settings = pods;
                    differs
                });
                if changed {
                    taken.changed.push("endpoints");
                }
            }
            Endpoints::File(_) => taken.waiting.push("endpoints"),
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests;
