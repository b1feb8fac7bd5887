//! The scheduler as its callers see it: every method takes the one lock, does one bounded thing, and lets go.
//!
//! Lock order: this lock, then the index for reading. Whoever applies events writes the index first, lets go of it, and then
//! calls [`Scheduler::stored`]; so no block is ever in neither the index nor the overlay.

mod engines;
mod requests;
mod views;

use std::sync::Arc;

use arc_swap::ArcSwap;
use lmetric_prefix::{BlockSize, SharedIndex, SourceId};

use crate::{
    EndpointId, EndpointSpec, Outcome, SchedulerConfig, SpaceSpec, Time,
    endpoint::{Endpoint, SpaceId},
    ledger,
    state::State,
    sync::Mutex,
};

/// Choose, reserve, follow, release. All methods are safe to call from many threads.
pub struct Scheduler {
    state: Mutex<State>,
    index: Arc<SharedIndex>,
    spaces: ArcSwap<Arc<[SpaceSpec]>>,
}

impl Scheduler {
    /// An empty scheduler over `index`.
    pub fn new(config: SchedulerConfig, index: Arc<SharedIndex>) -> Self {
        Self {
            state: Mutex::new(State::new(config)),
            index,
            spaces: ArcSwap::from_pointee(Arc::from([])),
        }
    }

    /// Changes policy and detector at run time; state of the ledger stays.
    pub fn reconfigure(&self, config: SchedulerConfig) {
        self.state.lock().reconfigure(config);
    }

    /// Adds an endpoint (not ready yet). `None` when all 65,536 slots are taken.
    pub fn add(&self, spec: EndpointSpec) -> Option<EndpointId> {
        let mut state = self.state.lock();
        let space = space_of(&mut state, &spec);
        let pace = state.config.pace();
        let id = state.fleet.add(|id| Endpoint::new(id, spec, space, pace))?;
        self.publish_spaces(&state);
        Some(id)
    }

    /// Removes it; its reservations are closed under the same lock. The caller clears the index afterwards and
    /// only then calls [`Scheduler::free_slot`].
    pub fn remove(&self, id: EndpointId, now: Time) {
        let mut state = self.state.lock();
        if let Some(mut endpoint) = state.fleet.remove(id) {
            close_all(&mut state, &mut endpoint, &self.index, now);
            if let Some(shadow) = &mut state.shadow {
                shadow.forget(id);
            }
            self.publish_spaces(&state);
        }
    }

    /// The slot's index entries are gone: it may be used again.
    pub fn free_slot(&self, slot: SourceId) {
        self.state.lock().fleet.free(slot);
    }

    /// Ready to take new requests, or not (terminating, health unknown).
    pub fn set_ready(&self, id: EndpointId, ready: bool) {
        if let Some(endpoint) = self.state.lock().fleet.get_mut(id) {
            endpoint.ready = ready;
        }
    }

    /// Tokens per block became known. Reservations that are open keep what they were picked with.
    pub fn set_block_size(&self, id: EndpointId, size: BlockSize) {
        let mut state = self.state.lock();
        let Some(endpoint) = state.fleet.get_mut(id) else {
            return;
        };
        if endpoint.spec.block_size == Some(size) {
            return;
        }
        endpoint.spec.block_size = Some(size);
        let spec = endpoint.spec.clone();
        let space = space_of(&mut state, &spec);
        if let Some(endpoint) = state.fleet.get_mut(id) {
            endpoint.space = space;
        }
        self.publish_spaces(&state);
    }

    /// Tokens that its KV cache takes (`num_gpu_blocks` × block size), for policies that look at the cache's use.
    pub fn set_kv_tokens(&self, id: EndpointId, tokens: u64) {
        if let Some(endpoint) = self.state.lock().fleet.get_mut(id) {
            endpoint.kv_tokens = Some(tokens);
        }
    }

    /// Adapters it can serve; `None` = unknown (then any adapter is assumed).
    pub fn set_adapters(&self, id: EndpointId, adapters: Option<Vec<String>>) {
        if let Some(endpoint) = self.state.lock().fleet.get_mut(id) {
            endpoint.adapters = adapters;
        }
    }

    /// Whether its KV events can be trusted for progress; when not, Q falls by rate. What is open when trust is lost falls by
    /// rate to its end.
    pub fn set_source_live(&self, id: EndpointId, live: bool, now: Time) {
        let mut state = self.state.lock();
        let rates = state.rates();
        let State {
            fleet,
            slab,
            counters,
            answers,
            ..
        } = &mut *state;
        let Some(endpoint) = fleet.get_mut(id) else {
            return;
        };
        counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
        if endpoint.live && !live {
            ledger::follow_by_rate(slab, endpoint);
            answers.forget_all(id.slot);
        }
        endpoint.live = live;
    }

    /// Its engine restarted: reservations on it are closed.
    pub fn restarted(&self, id: EndpointId, now: Time) {
        let mut state = self.state.lock();
        // closing takes the endpoint and the rest of the state apart
        let Some(mut endpoint) = state.fleet.lift(id) else {
            return;
        };
        close_all(&mut state, &mut endpoint, &self.index, now);
        endpoint.foreign.clear();
        state.fleet.put_back(endpoint);
    }

    /// Distinct (group, block size) among endpoints, at most four: what chains a request needs. Lock-free.
    pub fn spaces(&self) -> Arc<[SpaceSpec]> {
        Arc::clone(&self.spaces.load())
    }

    fn publish_spaces(&self, state: &State) {
        self.spaces.store(Arc::new(state.spaces.in_use(&state.fleet)));
    }
}

fn space_of(state: &mut State, spec: &EndpointSpec) -> Option<SpaceId> {
    state.spaces.intern(SpaceSpec {
        group: Arc::clone(&spec.group),
        block_size: spec.block_size?,
    })
}
/// Closes every reservation of an endpoint that is going away or lost its engine.
fn close_all(state: &mut State, endpoint: &mut Endpoint, index: &SharedIndex, now: Time) {
    state.answers.forget_all(endpoint.id.slot);
    while let Some(place) = endpoint.open.last().copied() {
        // nobody is left to be charged again
        let closed = ledger::close(&mut state.slab, endpoint, index, place, false, now);
        if let Some(closed) = closed {
            endpoint.ejection.undecided(closed.id);
            state.counters.released[Outcome::Unknown.index()] += 1;
        }
    }
}
