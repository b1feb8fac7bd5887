//! What is known of one address, whatever number of ranks shares it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::RwLock;
use tokio::{sync::Notify, time::Instant};

use super::models::ModelCard;

/// An address that has failed for this long is not ready, even where every try only timed out (a busy
/// engine's metrics page may take seconds; a refused connection counts at once).
const PATIENCE: Duration = Duration::from_secs(10);

/// One address.
#[derive(Debug)]
pub struct Target {
    /// The address.
    pub address: SocketAddr,
    state: RwLock<State>,
    doubted: Notify,
}

#[derive(Debug, Default)]
struct State {
    answered: bool,
    refused: bool,
    failing_since: Option<Instant>,
    last_error: Option<String>,
    process_start: Option<f64>,
    models: Option<(Instant, Arc<[ModelCard]>)>,
}

impl Target {
    /// Nothing is known yet.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            state: RwLock::default(),
            doubted: Notify::new(),
        }
    }

    /// A request failed there, or the gateway passed it over: whether it still answers should be known soon.
    pub fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Ends when somebody has doubted it since the last time.
    pub async fn doubted(&self) {
        self.doubted.notified().await;
    }

    /// It answered.
    pub fn answered(&self) {
        let mut state = self.state.write();
        state.answered = true;
        state.refused = false;
        state.failing_since = None;
        state.last_error = None;
    }

    /// It did not answer.
    pub fn failed(&self, now: Instant, refused: bool, error: String) {
        let mut state = self.state.write();
        state.refused = refused;
        state.failing_since.get_or_insert(now);
        state.last_error = Some(error);
    }

    /// It answers, as far as is known now.
    pub fn is_up(&self, now: Instant) -> bool {
        let state = self.state.read();
        let failing = state
            .failing_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        state.answered && !state.refused && failing < PATIENCE
    }

    /// It was tried at least once.
    pub fn was_tried(&self) -> bool {
        let state = self.state.read();
        state.answered || state.last_error.is_some()
    }

    /// Why the last try failed, if it did.
    pub fn last_error(&self) -> Option<String> {
        self.state.read().last_error.clone()
    }

    /// Notes the start of the process. True when it is a later one than before.
    pub fn process_started(&self, at: f64) -> bool {
        let mut state = self.state.write();
        let restarted = state.process_start.is_some_and(|before| at > before + 1.0);
        if restarted || state.process_start.is_none() {
            state.process_start = Some(at);
        }
        restarted
    }

    /// What it serves was read. True when it changed.
    pub fn set_models(&self, now: Instant, cards: Vec<ModelCard>) -> bool {
        let mut state = self.state.write();
        let changed = state.models.as_ref().is_none_or(|(_, before)| **before != *cards);
        state.models = Some((now, cards.into()));
        changed
    }

    /// What it serves, and when that was read.
    pub fn models(&self) -> Option<(Instant, Arc<[ModelCard]>)> {
        self.state.read().models.clone()
    }
}
