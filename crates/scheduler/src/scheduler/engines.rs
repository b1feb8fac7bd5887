//! What engines say of themselves, and what time does to it.

use std::time::Duration;

use lmetric_prefix::{BlockKey, ContentHash, SourceId};

use super::Scheduler;
use crate::{EndpointId, ScrapeSample, Time, endpoint::KvUse, ledger, state::State, sync::checkpoint};

/// A scrape is due every 5 s at the latest; three missed ones end a sample.
const PATIENCE: Duration = Duration::from_secs(15);
/// Blocks compared in one search by content.
const MOST_COMPARED: usize = 1 << 16;

impl Scheduler {
    /// A scrape succeeded.
    pub fn scraped(&self, id: EndpointId, sample: ScrapeSample, now: Time) {
        let mut state = self.state.lock();
        let pace = state.config.pace();
        if let Some(endpoint) = state.fleet.get_mut(id) {
            let prefilling = endpoint.load.prefilling;
            endpoint.foreign.scraped(sample, &endpoint.peak, prefilling, pace);
            endpoint.ejection.scraped(now);
        }
    }

    /// A scrape said that requests use `tokens` of the endpoint's KV cache (`vllm:kv_cache_usage_perc` × its size).
    pub fn set_kv_used(&self, id: EndpointId, tokens: u64) {
        if let Some(endpoint) = self.state.lock().fleet.get_mut(id) {
            endpoint.kv_use = Some(KvUse {
                used: tokens,
                pledged: endpoint.load.q,
            });
        }
    }

    /// The engine answered a scrape but has no page of metrics: it is reachable, and tells no load.
    pub fn scraped_without_page(&self, id: EndpointId, now: Time) {
        if let Some(endpoint) = self.state.lock().fleet.get_mut(id) {
            endpoint.kv_use = None;
            endpoint.foreign.missed();
            endpoint.ejection.scraped(now);
        }
    }

    /// A scrape failed; `refused` when the connection was refused.
    pub fn scrape_failed(&self, id: EndpointId, refused: bool, now: Time) {
        let mut state = self.state.lock();
        let pace = state.config.pace();
        let State { fleet, counters, .. } = &mut *state;
        if let Some(endpoint) = fleet.get_mut(id) {
            endpoint.foreign.missed();
            let ejected = endpoint.ejection.scrape_failed(refused, now, pace);
            counters.ejections += u64::from(ejected);
        }
    }

    /// A scrape had no answer, and after it no connection could be made: the engine's machine is gone.
    pub fn lost(&self, id: EndpointId, now: Time) {
        let mut state = self.state.lock();
        let pace = state.config.pace();
        let State { fleet, counters, .. } = &mut *state;
        if let Some(endpoint) = fleet.get_mut(id) {
            endpoint.foreign.missed();
            counters.ejections += u64::from(endpoint.ejection.lost(now, pace));
        }
    }

    /// How long a scrape may be away before its sample no longer counts.
    pub fn scrape_patience(&self) -> Duration {
        self.state.lock().config.pace().real(PATIENCE)
    }

    /// Moves time-driven state on: Q that falls by rate, windows, doubts about tokens. Picks do most of it for themselves; call it
    /// about once per second so that an idle picker does too.
    pub fn tick(&self, now: Time) {
        let mut state = self.state.lock();
        state.refresh_rates(now);
        let rates = state.rates();
        let patience = state.config.pace().real(PATIENCE);
        let State {
            fleet,
            slab,
            counters,
            hotspot,
            checks,
            shadow,
            ..
        } = &mut *state;
        for endpoint in fleet.iter_mut() {
            counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
            endpoint.foreign.expire(now.before(patience));
        }
        hotspot.advance(now);
        if let Some(shadow) = shadow {
            shadow.advance(now);
        }
        if checks.has_due(now) {
            checkpoint();
            checks.settle(fleet, &self.index.read(), now);
        }
    }

    /// An open reservation on `slot` that has blocks with these contents in a row: (key before, keys before it). Searches the open
    /// reservations of that slot, at most 65,536 blocks of them.
    pub fn find_contents(
        &self,
        slot: SourceId,
        contents: &[ContentHash],
    ) -> Option<(BlockKey, Vec<BlockKey>)> {
        let first = contents.first()?;
        let state = self.state.lock();
        let endpoint = state.fleet.at(slot)?;
        let mut left = MOST_COMPARED;
        let reservations = endpoint.open.iter().rev().filter_map(|at| state.slab.get(*at));
        for chain in reservations.flat_map(|found| found.tracks.iter().filter_map(|one| one.chain())) {
            let length = chain.contents.len().min(left);
            left -= length;
            let at = chain.contents[..length]
                .iter()
                .enumerate()
                .filter(|(_, content)| *content == first)
                .map(|(at, _)| at)
                .find(|at| chain.contents[*at..].starts_with(contents));
            if let Some(at) = at {
                let before = &chain.keys[..at];
                let parent = before.last().copied().unwrap_or(chain.root);
                return Some((parent, before.to_vec()));
            }
            if left == 0 {
                break;
            }
        }
        None
    }
}
