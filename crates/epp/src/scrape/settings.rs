//! How often engines are read, changeable while they are.

use std::sync::Arc;

use arc_swap::ArcSwap;
use lmetric_api::Scrape;

/// Intervals, already divided by the speed. Clones share them.
#[derive(Clone, Debug)]
pub struct ScrapeSettings(Arc<ArcSwap<Scrape>>);

impl ScrapeSettings {
    /// `scrape` as configured, at this speed.
    pub fn new(scrape: Scrape, speed: f64) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(quickened(scrape, speed))))
    }

    /// From the next read on.
    pub fn set(&self, scrape: Scrape, speed: f64) {
        self.0.store(Arc::new(quickened(scrape, speed)));
    }

    /// Now.
    pub fn now(&self) -> Scrape {
        **self.0.load()
    }
}

fn quickened(scrape: Scrape, speed: f64) -> Scrape {
    let Scrape { busy, idle, timeout } = scrape;
    Scrape {
        busy: busy.div_f64(speed),
        idle: idle.div_f64(speed),
        timeout,
    }
}
