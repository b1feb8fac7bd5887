//! The life of one request: picked, followed, moved, released.

use std::net::SocketAddr;

use lmetric_prefix::{BlockKey, SourceId};
use rand::RngCore;

use super::Scheduler;
use crate::{
    HitCheck, NoEndpoint, Outcome, Pick, PickRequest, ReservationId, Time,
    checks::GRACE,
    endpoint::Endpoint,
    ledger::{self, Computed, Reservation, held_run},
    pick::pick,
    state::State,
    sync::checkpoint,
};

impl Scheduler {
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
        self.announced(slot, &[(Computed::Now, blocks)], now);
    }

    /// As [`Scheduler::stored`], where some of the blocks were computed before.
    pub fn announced(&self, slot: SourceId, parts: &[(Computed, &[(BlockKey, BlockKey)])], now: Time) {
        let mut state = self.state.lock();
        let rates = state.rates();
        let State {
            fleet,
            slab,
            counters,
            answers,
            ..
        } = &mut *state;
        let Some(endpoint) = fleet.at_mut(slot) else {
            return;
        };
        counters.released_by_rate += ledger::advance(slab, endpoint, now, rates);
        ledger::stored(slab, endpoint, answers, parts, now);
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
            reservation.first_output.get_or_insert(now);
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
            answers,
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
            answers.forget(id);
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
                    held_run(&endpoint.claims, &index, slot, keys, run)
                } else {
                    run
                };
                run as u32
            }));
        }
        let ahead = endpoint.queued(mean_prompt);
        ledger::open(slab, endpoint, place, runs, ahead, now);
        if let Some(reservation) = slab.get(place)
            && answers.is_followed(id)
        {
            answers.follow(reservation);
        }
    }

    /// From now on the blocks that the engine decodes for this reservation are counted, for [`Scheduler::answer_tokens`]. False
    /// where they cannot tell an answer's length: no live events, estimated tokens, or several answers.
    pub fn follow_answer(&self, id: ReservationId) -> bool {
        let mut state = self.state.lock();
        let State { slab, answers, .. } = &mut *state;
        let reservation = slab.place(id).and_then(|place| slab.get(place));
        reservation.is_some_and(|reservation| answers.follow(reservation))
    }

    /// The length of a followed answer by its decoded blocks, in tokens: at most half a block off once every event has come. To be
    /// asked once, a moment after the release; `None` where nobody can know.
    pub fn answer_tokens(&self, id: ReservationId) -> Option<u32> {
        self.state.lock().answers.take(id)
    }

    /// `cached_tokens` of the answer: checks the prediction, once for each request.
    pub fn cached_tokens(&self, id: ReservationId, tokens: u64) -> Option<HitCheck> {
        let mut state = self.state.lock();
        let place = state.slab.place(id)?;
        let reservation = state.slab.get_mut(place)?;
        reservation.cached = Some(tokens);
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

    /// How many tokens the answer has had so far.
    pub fn output_tokens(&self, id: ReservationId, tokens: u64) {
        let mut state = self.state.lock();
        if let Some(place) = state.slab.place(id)
            && let Some(reservation) = state.slab.get_mut(place)
        {
            reservation.output_tokens = Some(tokens);
        }
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
        if outcome == Outcome::Done {
            state.answers.end(id);
        } else {
            state.answers.forget(id);
        }
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
        if matches!(outcome, Outcome::Done | Outcome::ClientAbort)
            && let Some(reservation) = slab.get(place)
        {
            endpoint.recent.ended(reservation, outcome, now, pace);
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

/// A request that left while it was queued stores nothing either, so each doubt needs a stored run that nobody claimed.
fn token_evidence(reservation: &Reservation, endpoint: &mut Endpoint) -> Evidence {
    if reservation.estimated || !reservation.live {
        return Evidence::None;
    }
    if reservation.started {
        return Evidence::Matched;
    }
    let used = endpoint.strangers_used.max(reservation.strangers);
    if endpoint.strangers == used {
        return Evidence::None;
    }
    endpoint.strangers_used = used + 1;
    let expected = reservation
        .tracks
        .iter()
        .find_map(|track| track.keys().get(track.predicted as usize));
    expected.map_or(Evidence::None, |key| Evidence::Doubt(*key))
}
