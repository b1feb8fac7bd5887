//! Requests that make the engine announce again what it already holds (`kv_cache_report_mode`).

use std::collections::VecDeque;

use lmetric_prefix::BlockKey;

/// Most such requests that are waited for.
const MOST: usize = 64;
/// Most keys over all of them.
const MOST_KEYS: usize = 65_536;

/// Chains whose beginning may be announced again without a new copy.
#[derive(Debug, Default)]
pub(super) struct Reports {
    expected: VecDeque<Vec<BlockKey>>,
    keys: usize,
}

impl Reports {
    /// A request with this chain goes to the engine. With too many of them the oldest is forgotten.
    pub(super) fn expect(&mut self, chain: Vec<BlockKey>) {
        if chain.is_empty() || chain.len() > MOST_KEYS {
            return;
        }
        self.keys += chain.len();
        self.expected.push_back(chain);
        while self.expected.len() > MOST || self.keys > MOST_KEYS {
            if let Some(oldest) = self.expected.pop_front() {
                self.keys -= oldest.len();
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// Whether a run that begins a prompt is the beginning of an expected chain; that chain is then no
    /// longer expected, because each request announces its reused blocks in one event.
    pub(super) fn take(&mut self, run: &[BlockKey]) -> bool {
        let Some(at) = self.expected.iter().position(|chain| chain.starts_with(run)) else {
            return false;
        };
        if let Some(chain) = self.expected.remove(at) {
            self.keys -= chain.len();
        }
        true
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
