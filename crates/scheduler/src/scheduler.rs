//! The scheduler as its callers see it: every method takes the one lock, does one bounded thing, and lets go.
//!
//! Lock order: this lock, then the index for reading. Whoever applies events writes the index first, lets go of it, and then
//! calls [`Scheduler::stored`]; so no block is ever in neither the index nor the overlay.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use lmetric_prefix::{BlockKey, BlockSize, ContentHash, SharedIndex, SourceId};
use rand::RngCore;

use crate::{
    Counters, Decision, EndpointId, EndpointSpec, EndpointView, HitCheck, HotspotNote, NoEndpoint, Outcome,
    Pick, PickRequest, ReservationId, SchedulerConfig, ScrapeSample, SpaceSpec, Time, TokenCheck,
    checks::GRACE,
    endpoint::Endpoint,
    ledger::{self, Reservation, held_run},
    pick::pick,
    state::State,
    sync::{Mutex, checkpoint},
};

/// A scrape is due every 5 s at the latest; three missed ones end a sample.
const PATIENCE: Duration = Duration::from_secs(15);
/// Blocks compared in one search by content.
const MOST_COMPARED: usize = 1 << 16;

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

    // endpoints

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
            ..
        } = &mut *state;
        let Some(endpoint) = fleet.get_mut(id) else {
            return;
        };
        counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
        if endpoint.live && !live {
            ledger::follow_by_rate(slab, endpoint);
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

    // requests

    /// Chooses and reserves. O(endpoints + look-up).
    pub fn pick(
        &self,
        request: &PickRequest<'_>,
        now: Time,
        rng: &mut dyn RngCore,
    ) -> Result<Pick, NoEndpoint> {
        pick(&mut self.state.lock(), &self.index, request, now, rng)
    }

    /// Blocks were stored on `slot`, in order as (parent, key); the index already has them.
    pub fn stored(&self, slot: SourceId, blocks: &[(BlockKey, BlockKey)], now: Time) {
        let mut state = self.state.lock();
        let rates = state.rates();
        let State {
            fleet,
            slab,
            counters,
            ..
        } = &mut *state;
        let Some(endpoint) = fleet.at_mut(slot) else {
            return;
        };
        counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
        ledger::stored(slab, endpoint, blocks, now);
        // what went may have been all that was ahead of a tail
        ledger::advance(slab, endpoint, now, rates);
    }

    /// The first generated output of the request was seen.
    pub fn first_output(&self, id: ReservationId, now: Time) {
        let mut state = self.state.lock();
        let rates = state.rates();
        let State {
            fleet,
            slab,
            counters,
            ..
        } = &mut *state;
        let Some(place) = slab.place(id) else {
            return;
        };
        let Some(slot) = slab.get(place).and_then(|found| found.slot) else {
            return;
        };
        let Some(endpoint) = fleet.at_mut(slot) else {
            return;
        };
        counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
        if let Some(reservation) = slab.get_mut(place) {
            ledger::end_output(reservation, &mut endpoint.load);
            reservation.judged = true;
            endpoint.ejection.success(reservation.picked);
        }
    }

    /// The engine's `:status` was seen; it counts for or against the engine at once instead of at the end.
    pub fn status(&self, id: ReservationId, status: u16, now: Time) {
        let outcome = if status < 500 {
            Outcome::Done
        } else {
            Outcome::ServerError
        };
        let mut state = self.state.lock();
        if let Some(place) = state.slab.place(id) {
            judge(&mut state, place, outcome, now);
        }
    }

    /// The gateway says that the request was really served there: the reservation moves. When we do not know the address it
    /// is nobody's load from now on. Of several ranks behind the address the least loaded one is taken.
    pub fn served_by(&self, id: ReservationId, address: SocketAddr, now: Time) {
        let mut state = self.state.lock();
        let Some(place) = state.slab.place(id) else {
            return;
        };
        let old = state.slab.get(place).and_then(|found| found.slot);
        let is_there = old
            .and_then(|slot| state.fleet.at(slot))
            .is_some_and(|endpoint| endpoint.spec.address == address);
        if is_there {
            return;
        }
        state.counters.moved += 1;
        let overlay = state.config.overlay;
        let mean_prompt = state.mean_prompt.get();
        let rates = state.rates();
        let State {
            fleet,
            slab,
            counters,
            ..
        } = &mut *state;
        if let Some(endpoint) = old.and_then(|slot| fleet.at_mut(slot)) {
            counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
            endpoint.ejection.undecided(id);
            ledger::detach(slab, endpoint, &self.index, place, overlay, now);
        }
        let new = fleet
            .iter_mut()
            .filter(|endpoint| endpoint.spec.address == address)
            .min_by_key(|endpoint| endpoint.load.bs);
        let Some(endpoint) = new else {
            return;
        };
        counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
        let slot = endpoint.id.slot;
        let mut runs = Vec::new();
        if let Some(reservation) = slab.get(place) {
            checkpoint();
            let index = self.index.read();
            runs.extend(reservation.tracks.iter().map(|track| {
                let keys = track.keys_in(endpoint.space);
                let run = index.run_from(slot, keys, 0);
                let run = if overlay {
                    held_run(slab, &endpoint.claims, &index, slot, keys, run)
                } else {
                    run
                };
                run as u32
            }));
        }
        let ahead = endpoint.queued(mean_prompt);
        ledger::open(slab, endpoint, place, runs, ahead, now);
    }

    /// `cached_tokens` of the answer: checks the prediction, once for each request.
    pub fn cached_tokens(&self, id: ReservationId, tokens: u64) -> Option<HitCheck> {
        let mut state = self.state.lock();
        let place = state.slab.place(id)?;
        let reservation = state.slab.get_mut(place)?;
        if reservation.estimated || std::mem::replace(&mut reservation.checked, true) {
            return None;
        }
        let check = HitCheck {
            predicted: reservation.predicted_tokens(),
            real: tokens,
        };
        state.checks.hit(check);
        Some(check)
    }

    /// The keys that an engine must hold when it found `tokens` prompt tokens of this request in its cache, if these are more than
    /// were predicted: they are holders by inference.
    pub fn inferred_holders(&self, id: ReservationId, tokens: u64) -> Option<(SourceId, Vec<BlockKey>)> {
        let state = self.state.lock();
        let reservation = state.slab.get(state.slab.place(id)?)?;
        let slot = reservation.slot?;
        let [track] = reservation.tracks.as_slice() else {
            return None;
        };
        let size = u64::from(track.block_tokens());
        if reservation.estimated || size == 0 {
            return None;
        }
        let blocks = (tokens / size).min(u64::from(track.blocks())) as u32;
        (blocks > track.predicted).then(|| (slot, track.keys()[..blocks as usize].to_vec()))
    }

    /// Ends the reservation, exactly once; later calls do nothing. True the first time.
    pub fn release(&self, id: ReservationId, outcome: Outcome, now: Time) -> bool {
        let mut state = self.state.lock();
        let Some(place) = state.slab.place(id) else {
            return false;
        };
        judge(&mut state, place, outcome, now);
        state.counters.released[outcome.index()] += 1;
        let overlay = state.config.overlay;
        let pace = state.config.pace();
        let rates = state.rates();
        let State {
            fleet,
            slab,
            counters,
            checks,
            ..
        } = &mut *state;
        if let Some(reservation) = slab.get(place)
            && let Some(check) = first_run_check(reservation)
        {
            checks.hit(check);
        }
        let slot = slab.get(place).and_then(|found| found.slot);
        let Some(endpoint) = slot.and_then(|slot| fleet.at_mut(slot)) else {
            slab.take(place);
            return true;
        };
        counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
        if outcome == Outcome::Done
            && let Some(reservation) = slab.get(place)
        {
            match token_evidence(reservation, endpoint) {
                Evidence::None => {}
                Evidence::Matched => checks.matched(&endpoint.spec.group),
                Evidence::Doubt(key) => {
                    checks.doubt(endpoint.id, key, now.after(pace.real(GRACE)));
                }
            }
        }
        ledger::close(slab, endpoint, &self.index, place, overlay, now);
        true
    }

    /// Whether the reservation is neither released nor closed with its endpoint.
    pub fn is_open(&self, id: ReservationId) -> bool {
        self.state.lock().slab.place(id).is_some()
    }

    /// Open reservations.
    pub fn open(&self) -> usize {
        self.state.lock().slab.len()
    }

    // engines' own figures

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
            ..
        } = &mut *state;
        for endpoint in fleet.iter_mut() {
            counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
            endpoint.foreign.expire(now.before(patience));
        }
        hotspot.advance(now);
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

    // what people and metrics see

    /// Every endpoint now.
    pub fn endpoints(&self, now: Time) -> Vec<EndpointView> {
        let mut state = self.state.lock();
        state.refresh_rates(now);
        let rates = state.rates();
        let mean_prompt = state.mean_prompt.get();
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
            blocks: index.held_by(endpoint.id.slot),
            optimistic_blocks: outstanding_blocks(endpoint, slab),
            ready: endpoint.ready,
            ejected_until: endpoint.ejection.until().map(|until| until.0),
            rate: rates.of(endpoint),
        };
        fleet.iter().map(view).collect()
    }

    /// The latest decisions, newest first.
    pub fn decisions(&self, most: usize) -> Vec<Decision> {
        self.state.lock().ring.latest(most)
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
}

fn space_of(state: &mut State, spec: &EndpointSpec) -> Option<crate::endpoint::SpaceId> {
    state.spaces.intern(SpaceSpec {
        group: Arc::clone(&spec.group),
        block_size: spec.block_size?,
    })
}

fn outstanding_blocks(endpoint: &Endpoint, slab: &ledger::Slab) -> usize {
    let open = endpoint.open.iter().filter_map(|place| slab.get(*place));
    open.flat_map(|found| &found.tracks)
        .map(|track| (track.blocks() - track.reach) as usize)
        .sum()
}

/// Closes every reservation of an endpoint that is going away or lost its engine.
fn close_all(state: &mut State, endpoint: &mut Endpoint, index: &SharedIndex, now: Time) {
    while let Some(place) = endpoint.open.last().copied() {
        // nobody is left to be charged again
        let closed = ledger::close(&mut state.slab, endpoint, index, place, false, now);
        if let Some(closed) = closed {
            endpoint.ejection.undecided(closed.id);
            state.counters.released[Outcome::Unknown.index()] += 1;
        }
    }
}

/// Counts the outcome for or against the engine, once for each reservation.
fn judge(state: &mut State, place: u32, outcome: Outcome, now: Time) {
    let pace = state.config.pace();
    let State {
        fleet,
        slab,
        counters,
        ..
    } = state;
    let Some(reservation) = slab.get_mut(place) else {
        return;
    };
    let Some(endpoint) = reservation.slot.and_then(|slot| fleet.at_mut(slot)) else {
        return;
    };
    if reservation.judged {
        return;
    }
    let id = reservation.id;
    match outcome {
        Outcome::Done => {
            reservation.judged = true;
            endpoint.ejection.success(reservation.picked);
        }
        Outcome::ServerError | Outcome::Unreachable => {
            reservation.judged = true;
            let unreachable = outcome == Outcome::Unreachable;
            let ejected = endpoint.ejection.failure(id, unreachable, now, pace);
            counters.ejections += u64::from(ejected);
        }
        Outcome::ClientAbort | Outcome::Unknown => endpoint.ejection.undecided(id),
    }
}

/// The prediction against the start of the first own run, unless `cached_tokens` said it better.
fn first_run_check(reservation: &Reservation) -> Option<HitCheck> {
    if reservation.checked || reservation.estimated || reservation.tracks.is_empty() {
        return None;
    }
    let mut real = 0;
    for track in &reservation.tracks {
        real += u64::from(track.start?.min(track.most()) * track.block_tokens());
    }
    Some(HitCheck {
        predicted: reservation.predicted_tokens(),
        real,
    })
}

/// What a finished request says about our tokens.
enum Evidence {
    None,
    Matched,
    /// This block should have been stored.
    Doubt(BlockKey),
}

fn token_evidence(reservation: &Reservation, endpoint: &Endpoint) -> Evidence {
    if reservation.estimated || !reservation.live || endpoint.stores == reservation.stores {
        return Evidence::None;
    }
    if reservation.started {
        return Evidence::Matched;
    }
    let expected = reservation
        .tracks
        .iter()
        .find_map(|track| track.keys().get(track.predicted as usize));
    expected.map_or(Evidence::None, |key| Evidence::Doubt(*key))
}
