//! What people and metrics see.

use super::Scheduler;
use crate::{
    Counters, Decision, EndpointView, HitCheck, HotspotNote, PolicyKind, ShadowView, Time, TokenCheck,
    endpoint::Endpoint,
    ledger::{self, Slab},
    state::State,
    sync::checkpoint,
};

impl Scheduler {
    /// Every endpoint now.
    pub fn endpoints(&self, now: Time) -> Vec<EndpointView> {
        let mut state = self.state.lock();
        state.refresh_rates(now);
        let rates = state.rates();
        let mean_prompt = state.mean_prompt.get();
        let pace = state.config.pace();
        let State {
            fleet,
            slab,
            counters,
            ..
        } = &mut *state;
        for endpoint in fleet.iter_mut() {
            counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
        }
        checkpoint();
        let index = self.index.read();
        let view = |endpoint: &Endpoint| EndpointView {
            address: endpoint.spec.address,
            rank: endpoint.spec.rank,
            slot: endpoint.id.slot.0,
            q: endpoint.load.q,
            bs: endpoint.load.bs,
            foreign_bs: u64::from(endpoint.foreign.requests()),
            foreign_q: endpoint.foreign.tokens(mean_prompt),
            kv_tokens: endpoint.kv_tokens,
            kv_used: endpoint.kv_use.map(|kv_use| kv_use.used),
            blocks: index.held_by(endpoint.id.slot),
            optimistic_blocks: outstanding_blocks(endpoint, slab),
            ready: endpoint.ready,
            ejected_until: endpoint.ejection.until().map(|until| until.0),
            rate: rates.of(endpoint),
            recent: endpoint.recent.at(now, pace),
        };
        fleet.iter().map(view).collect()
    }

    /// The latest decisions, newest first.
    pub fn decisions(&self, most: usize) -> Vec<Decision> {
        self.state.lock().ring.latest(most)
    }

    /// The shadow beside the live policy, if one is configured. O(endpoints).
    pub fn shadow(&self) -> Option<ShadowView> {
        let state = self.state.lock();
        state.shadow.as_ref().map(|shadow| shadow.view(&state.fleet))
    }

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        let state = self.state.lock();
        let mut counters = state.counters.clone();
        counters.alarms += state.hotspot.alarms();
        counters.filters += state.hotspot.filters();
        counters.token_mismatches = state.checks.mismatches;
        counters
    }

    /// Hit checks since the last call (bounded; for a histogram).
    pub fn take_hit_checks(&self) -> Vec<HitCheck> {
        self.state.lock().checks.take_hits()
    }

    /// Token checks since the last call (bounded; for the ≥ 20 % over 100 requests rule).
    pub fn take_token_checks(&self) -> Vec<TokenCheck> {
        self.state.lock().checks.take_tokens()
    }

    /// Alarms and filters since the last call that deserve a log line (bounded).
    pub fn take_hotspot_notes(&self) -> Vec<HotspotNote> {
        self.state.lock().hotspot.take_notes()
    }

    /// The classes for which an alarm holds now, the most frequent first. O(classes).
    pub fn hotspots(&self) -> Vec<HotspotNote> {
        self.state.lock().hotspot.now()
    }

    /// The policy in force.
    pub fn policy(&self) -> PolicyKind {
        self.state.lock().config.policy
    }
}

fn outstanding_blocks(endpoint: &Endpoint, slab: &Slab) -> usize {
    let open = endpoint.open.iter().filter_map(|place| slab.get(*place));
    open.flat_map(|found| &found.tracks)
        .map(|track| (track.blocks() - track.reach) as usize)
        .sum()
}
