//! Charging and releasing: the only places where a reservation joins or leaves an endpoint's sums.

use lmetric_prefix::{BlockKey, SharedIndex, SourceId};
use smallvec::SmallVec;

use super::{Reservation, ReservationId, Slab, claims::Claim, clock::Tail, overlay::held_run};
use crate::{Time, endpoint::Endpoint, sync::checkpoint};

/// Sums over an endpoint's open reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Q, tokens.
    pub(crate) q: u64,
    /// BS, engine requests.
    pub(crate) bs: u64,
    /// Engine requests with no own event and no output yet.
    pub(crate) waiting: u64,
    /// Engine requests with Q > 0.
    pub(crate) prefilling: u64,
    /// The part of `q` that time, not events, will end.
    pub(crate) by_clock: u64,
    /// L over its distinct prompts.
    pub(crate) tokens: u64,
    /// Σ q · (2L − q) over prompts: twice the pairs of tokens that the attention of `q` still has to see.
    pub(crate) pairs: u64,
    /// All Q that ever went, in whatever way; only grows.
    pub(crate) passed: u64,
}

/// Charges the reservation at `place` to `endpoint`, which holds `runs` leading blocks of its prompts.
/// `ahead` is the Q that waits there already, foreign load included. O(outstanding blocks).
pub(crate) fn open(
    slab: &mut Slab,
    endpoint: &mut Endpoint,
    place: u32,
    runs: impl IntoIterator<Item = u32>,
    ahead: u64,
    now: Time,
) {
    let Some(reservation) = slab.get_mut(place) else {
        return;
    };
    reservation.slot = Some(endpoint.id.slot);
    reservation.position = endpoint.open.len() as u32;
    reservation.by_rate = reservation.estimated || !endpoint.live;
    reservation.started = false;
    reservation.live = endpoint.live;
    reservation.strangers = endpoint.strangers;
    let id = reservation.id;
    endpoint.open.push(place);
    endpoint.load.bs += u64::from(reservation.weight);
    endpoint.load.tokens += reservation.tokens();
    if reservation.is_waiting() {
        endpoint.load.waiting += u64::from(reservation.weight);
    }

    let mark = endpoint.load.passed + endpoint.load.q;
    let mut before = ahead;
    for (at, run) in (0..reservation.tracks.len()).zip(runs) {
        let track = &mut reservation.tracks[at];
        track.settle(endpoint.space, run);
        if let Some(chain) = track.chain() {
            endpoint
                .claims
                .set(place, at as u32, chain, track.low(), track.reach);
        }
        let q = if reservation.output { 0 } else { track.uncached() };
        let is_tail = !reservation.by_rate && q > 0 && track.is_full_hit();
        if reservation.by_rate || is_tail {
            reservation.set_by_clock(at, true, &mut endpoint.load);
        }
        reservation.set_q(at, q, &mut endpoint.load);
        if is_tail {
            endpoint.clock.await_tail(Tail {
                id: reservation.id,
                track: at as u32,
                mark,
                work: before + u64::from(q),
                since: now,
                turn: None,
            });
        }
        before += u64::from(q);
    }
    if reservation.by_rate && reservation.q > 0 {
        endpoint.clock.fall(id);
    }
    endpoint.peak.set(endpoint.load.bs, now);

    // the clock's list may name closed reservations; it is swept when most of them could be
    let (slot, most) = (endpoint.id.slot, 2 * endpoint.open.len() + 16);
    if endpoint.clock.len() > most {
        endpoint
            .clock
            .retain(|id| is_on(slab, id, slot).is_some_and(|found| found.q > 0));
    }
}

/// The reservation `id`, if it is open on the endpoint at `slot`.
fn is_on(slab: &Slab, id: ReservationId, slot: SourceId) -> Option<&Reservation> {
    slab.get(slab.place(id)?).filter(|found| found.slot == Some(slot))
}

/// Takes the reservation at `place` off `endpoint`; its load is gone, whatever state it was in. When it ends with
/// blocks unstored, those that counted on them are charged again. O(its blocks).
pub(crate) fn detach(
    slab: &mut Slab,
    endpoint: &mut Endpoint,
    index: &SharedIndex,
    place: u32,
    overlay: bool,
    now: Time,
) {
    let Some(reservation) = slab.get_mut(place) else {
        return;
    };
    let mut unstored: SmallVec<[(u32, BlockKey); 1]> = SmallVec::new();
    for at in 0..reservation.tracks.len() {
        reservation.set_q(at, 0, &mut endpoint.load);
        reservation.set_by_clock(at, false, &mut endpoint.load);
        let track = &mut reservation.tracks[at];
        let key = track.keys().get(track.reach as usize);
        unstored.extend(key.map(|key| (track.reach, *key)));
        endpoint.claims.remove(place, at as u32);
    }
    endpoint.load.bs -= u64::from(reservation.weight);
    endpoint.load.tokens -= reservation.tokens();
    if reservation.is_waiting() {
        endpoint.load.waiting -= u64::from(reservation.weight);
    }
    let position = reservation.position as usize;
    reservation.slot = None;
    endpoint.open.swap_remove(position);
    if let Some(moved) = endpoint.open.get(position)
        && let Some(moved) = slab.get_mut(*moved)
    {
        moved.position = position as u32;
    }
    endpoint.peak.set(endpoint.load.bs, now);
    if overlay && !endpoint.open.is_empty() {
        for (position, key) in unstored {
            charge_again(slab, endpoint, index, position, key);
        }
    }
}

/// Detaches the reservation and forgets it.
pub(crate) fn close(
    slab: &mut Slab,
    endpoint: &mut Endpoint,
    index: &SharedIndex,
    place: u32,
    overlay: bool,
    now: Time,
) -> Option<Reservation> {
    detach(slab, endpoint, index, place, overlay, now);
    slab.take(place)
}

/// The filler of block `key` at `position` and of what follows is gone: predicts anew for those that counted on it, oldest first, so
/// that the first of them fills for the others.
fn charge_again(slab: &mut Slab, endpoint: &mut Endpoint, index: &SharedIndex, position: u32, key: BlockKey) {
    let mut counted: SmallVec<[(ReservationId, Claim); 8]> = endpoint
        .claims
        .at(position, key)
        .filter_map(|claim| {
            let reservation = slab.get(claim.place)?;
            let track = &reservation.tracks[claim.track as usize];
            (claim.position < track.reach && track.start.is_none() && !reservation.output)
                .then_some((reservation.id, claim))
        })
        .collect();
    if counted.is_empty() {
        return;
    }
    counted.sort_unstable_by_key(|(id, claim)| (*id, claim.track));
    checkpoint();
    let index = index.read();
    for (_, claim) in counted {
        let at = claim.track as usize;
        let Some(track) = slab.get(claim.place).map(|found| &found.tracks[at]) else {
            continue;
        };
        let known = &track.keys()[..track.reach as usize];
        let slot = endpoint.id.slot;
        let run = index.run_from(slot, known, 0);
        let run = held_run(&endpoint.claims, &index, slot, known, run) as u32;
        let Some(reservation) = slab.get_mut(claim.place) else {
            continue;
        };
        let track = &mut reservation.tracks[at];
        if run < track.reach {
            let more = (track.reach - run) * track.block_tokens();
            track.reach = run;
            track.predicted = run;
            if let Some(chain) = track.chain() {
                endpoint
                    .claims
                    .set(claim.place, claim.track, chain, track.low(), run);
            }
            if reservation.by_rate {
                let q = track.q + more;
                reservation.set_q(at, q, &mut endpoint.load);
                endpoint.clock.fall(reservation.id);
            } else {
                let q = track.uncached();
                reservation.set_by_clock(at, false, &mut endpoint.load);
                reservation.set_q(at, q, &mut endpoint.load);
            }
        }
    }
}

/// Generated output was seen: its prompts are computed.
pub(crate) fn end_output(reservation: &mut Reservation, load: &mut Load) {
    if reservation.is_waiting() {
        load.waiting -= u64::from(reservation.weight);
    }
    reservation.output = true;
    for at in 0..reservation.tracks.len() {
        reservation.set_q(at, 0, load);
    }
}

/// An own event was seen.
pub(crate) fn begin(reservation: &mut Reservation, load: &mut Load) {
    if reservation.is_waiting() {
        load.waiting -= u64::from(reservation.weight);
    }
    reservation.started = true;
}

/// The source is not live any more: what is left of every Q there falls by rate, oldest first.
pub(crate) fn follow_by_rate(slab: &mut Slab, endpoint: &mut Endpoint) {
    let mut affected: Vec<(ReservationId, u32)> = endpoint
        .open
        .iter()
        .filter_map(|place| Some((slab.get(*place)?.id, *place)))
        .collect();
    affected.sort_unstable();
    for (id, place) in affected {
        let Some(reservation) = slab.get_mut(place) else {
            continue;
        };
        reservation.live = false;
        if reservation.by_rate {
            continue;
        }
        reservation.by_rate = true;
        for at in 0..reservation.tracks.len() {
            reservation.set_by_clock(at, true, &mut endpoint.load);
        }
        if reservation.q > 0 {
            endpoint.clock.fall(id);
        }
    }
}
