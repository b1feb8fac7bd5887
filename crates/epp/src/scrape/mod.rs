//! Reading the engines: their metrics pages (requests running and waiting, cache size), what they serve, and
//! where they publish events.
//!
//! One task for each address. An address with requests is read every `busy`, an idle one every `idle`, both
//! jittered so that a fleet is not read in step; one where a request failed is read at once, five times in `busy` at most.
//! Whether idle ones still are is looked at every `busy`, at the same moment for all: a fleet of them wakes a thread once.

mod client;
pub mod models;
mod page;
mod settings;
pub mod sources;
mod target;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lmetric_scheduler::Time;
use rand::Rng;
use tokio::time::Instant;

pub use client::{EngineClient, FetchError};
pub use page::{EngineMetrics, Page, PageReader};
pub use settings::ScrapeSettings;
pub use target::Target;

use crate::{clock::Clock, metrics::ScrapeMetrics};

/// Largest metrics page.
const PAGE_LIMIT: usize = 8 << 20;
/// Largest list of models or event sources.
const LIST_LIMIT: usize = 4 << 20;
/// A list of models is read again when it is older.
const MODELS_AGE: Duration = Duration::from_secs(25);
/// Reads for doubt in the interval of a busy engine: one that answers every request with an error is not read for each.
const DOUBTS_IN_BUSY: u32 = 5;

/// Who wants to know what a scrape said.
pub trait Scraped: Send + Sync + 'static {
    /// The address has requests, own or foreign.
    fn is_busy(&self, target: &Target) -> bool;
    /// The page was read; `sent` is when it was asked for. `restarted`: its process is a new one.
    fn page(&self, target: &Target, page: &Page, sent: Time, restarted: bool);
    /// It answers, but has no metrics page (404).
    fn no_page(&self, target: &Target);
    /// The scrape failed.
    fn failed(&self, target: &Target, error: &FetchError);
    /// The list of models changed.
    fn models_changed(&self, target: &Target);
    /// Whether the engine should be asked where it publishes its events.
    fn wants_sources(&self, target: &Target) -> bool;
    /// Where it publishes; empty when it does not.
    fn sources(&self, target: &Target, ranks: &BTreeMap<u16, sources::EventAddress>);
}

/// Reads one address.
pub struct Scraper<S> {
    /// The address.
    pub target: Arc<Target>,
    /// Who wants to know.
    pub listener: Arc<S>,
    /// Connections.
    pub client: EngineClient,
    /// Intervals, already divided by the speed.
    pub settings: ScrapeSettings,
    /// The process's clock.
    pub clock: Clock,
    /// Counts and times.
    pub metrics: ScrapeMetrics,
}

impl<S: Scraped> Scraper<S> {
    /// Reads until it is dropped.
    pub async fn run(self) {
        tokio::time::sleep(jittered(self.settings.now().busy, 0.0..0.1)).await;
        loop {
            let started = Instant::now();
            let up = self.read_once().await;
            let due = started + jittered(self.settings.now().idle, 0.9..1.1);
            loop {
                let busy = self.settings.now().busy;
                let next = if up && !self.listener.is_busy(&self.target) {
                    self.settings.look(Instant::now()).min(due)
                } else {
                    Instant::now() + jittered(busy, 0.9..1.1)
                };
                let doubted = tokio::select! {
                    () = tokio::time::sleep_until(next) => false,
                    () = self.doubted(started + busy / DOUBTS_IN_BUSY) => true,
                };
                if doubted || !up || Instant::now() >= due || self.listener.is_busy(&self.target) {
                    break;
                }
            }
        }
    }

    /// Ends when the engine is doubted, but not before `earliest`.
    async fn doubted(&self, earliest: Instant) {
        tokio::time::sleep_until(earliest).await;
        self.target.doubted().await;
    }

    /// One scrape, and the lists that are due. True when the engine answered.
    async fn read_once(&self) -> bool {
        let target = &*self.target;
        let timeout = self.settings.now().timeout;
        let sent = self.clock.now();
        let started = Instant::now();
        let mut reader = PageReader::default();
        let result = self
            .client
            .get(target.address, "/metrics", PAGE_LIMIT, timeout, |piece| {
                reader.push(piece);
            })
            .await;
        let elapsed = started.elapsed();
        let result = match result {
            // busy, or gone with its machine
            Err(FetchError::Timeout(_)) if !self.client.is_reachable(target.address).await => {
                Err(FetchError::Unreachable)
            }
            result => result,
        };
        self.metrics.observe(elapsed, result.as_ref().err());
        match result {
            Ok(()) => {
                target.answered();
                let page = reader.finish();
                let restarted = page
                    .process_start
                    .is_some_and(|start| target.process_started(start));
                self.listener.page(target, &page, sent, restarted);
            }
            Err(FetchError::Status(400..=499)) => {
                target.answered();
                self.listener.no_page(target);
            }
            Err(error) => {
                target.failed(Instant::now(), error == FetchError::Refused, error.to_string());
                self.listener.failed(target, &error);
                return false;
            }
        }
        if target.models().is_none_or(|(at, _)| at.elapsed() > MODELS_AGE) {
            read_models(&self.client, target, &*self.listener, timeout).await;
        }
        if self.listener.wants_sources(target) {
            self.read_sources().await;
        }
        true
    }

    async fn read_sources(&self) {
        let target = &*self.target;
        let body = self
            .client
            .get_body(
                target.address,
                "/kv_event_sources",
                LIST_LIMIT,
                self.settings.now().timeout,
            )
            .await;
        let ranks = match body {
            Ok(body) => sources::parse(&body, target.address.ip()).map_err(|error| error.to_string()),
            // older engines do not know the path
            Err(FetchError::Status(400..=499)) => Ok(BTreeMap::new()),
            Err(error) => Err(error.to_string()),
        };
        match ranks {
            Ok(ranks) => self.listener.sources(target, &ranks),
            Err(error) => tracing::debug!(engine = %target.address, error, "event sources cannot be read"),
        }
    }
}

fn jittered(period: Duration, share: std::ops::Range<f64>) -> Duration {
    period.mul_f64(rand::rng().random_range(share))
}

/// Reads lists of models outside the scrapers' turn.
#[derive(Clone, Debug)]
pub struct ModelsReader {
    /// Connections.
    pub client: EngineClient,
    /// How long a read may take.
    pub settings: ScrapeSettings,
}

impl ModelsReader {
    /// Reads what `target` serves. True when that is known now.
    pub async fn read<S: Scraped>(&self, target: &Target, listener: &S) -> bool {
        read_models(&self.client, target, listener, self.settings.now().timeout).await
    }
}

async fn read_models<S: Scraped>(
    client: &EngineClient,
    target: &Target,
    listener: &S,
    timeout: Duration,
) -> bool {
    let body = client
        .get_body(target.address, "/v1/models", LIST_LIMIT, timeout)
        .await
        .map_err(|error| error.to_string());
    match body.and_then(|body| models::parse(&body).map_err(|error| error.to_string())) {
        Ok(cards) => {
            if target.set_models(Instant::now(), cards) {
                listener.models_changed(target);
            }
            true
        }
        Err(error) => {
            tracing::debug!(engine = %target.address, error, "models cannot be read");
            false
        }
    }
}
