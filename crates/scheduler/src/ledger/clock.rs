//! Q that time ends, because no event will tell of it.
//!
//! *Tails*: no full block is outstanding, so the engine announces nothing before the first generated block. Q goes at once when the
//! endpoint must have reached it: after `(Q ahead + own) / rate`, or `own / rate` after all that was ahead has gone. *Falling*: the
//! source is not live, or the tokens are estimates. Q falls linearly at `rate`, one reservation after the other.

use std::collections::VecDeque;

use super::{ReservationId, Slab};
use crate::{Time, config::Pace, endpoint::Endpoint};

/// A rate is never believed to be less than this share of the default one: a queue must not stand still for ever.
const LEAST_SHARE: f64 = 0.01;

/// A prompt of which no full block is outstanding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub(crate) id: ReservationId,
    pub(crate) track: u32,
    /// What must have passed before it is its turn.
    pub(crate) mark: u64,
    /// Q ahead and own, when it was picked.
    pub(crate) work: u64,
    pub(crate) since: Time,
    pub(crate) turn: Option<Time>,
}

/// Work of one endpoint that time ends, in the order of its picks.
#[derive(Debug, Default)]
pub(crate) struct WorkClock {
    tails: VecDeque<Tail>,
    falling: VecDeque<ReservationId>,
    at: Time,
    /// Work done that was less than a token.
    rest: f64,
}

impl WorkClock {
    pub(crate) fn await_tail(&mut self, tail: Tail) {
        self.tails.push_back(tail);
    }

    pub(crate) fn fall(&mut self, id: ReservationId) {
        self.falling.push_back(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.tails.len() + self.falling.len()
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(ReservationId) -> bool) {
        self.tails.retain(|tail| keep(tail.id));
        self.falling.retain(|id| keep(*id));
    }
}

/// What an endpoint's rate is taken for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) pace: Pace,
    /// Where nothing was measured: the pool's mean, else the configured rate. Tokens per real second.
    pub(crate) fallback: f64,
    /// The configured rate, tokens per real second.
    pub(crate) configured: f64,
}

impl Rates {
    pub(crate) fn of(&self, endpoint: &Endpoint) -> f64 {
        endpoint
            .rate
            .measured(self.pace)
            .unwrap_or(self.fallback)
            .max(self.configured * LEAST_SHARE)
    }
}

/// Moves an endpoint on to `now`; returns how many reservations' Q that ended by rate. O(what ends).
pub(crate) fn advance(slab: &mut Slab, endpoint: &mut Endpoint, now: Time, rates: Rates) -> u64 {
    let seconds = now.secs_since(endpoint.clock.at);
    endpoint.clock.at = endpoint.clock.at.max(now);
    let busy = endpoint.load.q > endpoint.load.by_clock;
    endpoint.rate.advance(now, busy, rates.pace);
    if endpoint.clock.falling.is_empty() && endpoint.clock.tails.is_empty() {
        return 0;
    }
    let rate = rates.of(endpoint);
    let ended = fall(slab, endpoint, rate * seconds);
    end_tails(slab, endpoint, now, rate);
    ended
}

fn fall(slab: &mut Slab, endpoint: &mut Endpoint, done: f64) -> u64 {
    let mut ended = 0;
    let mut budget = endpoint.clock.rest + done;
    while let Some(id) = endpoint.clock.falling.front().copied() {
        let open = slab
            .place(id)
            .and_then(|place| slab.get_mut(place))
            .filter(|found| found.slot == Some(endpoint.id.slot) && found.q > 0);
        let Some(reservation) = open else {
            endpoint.clock.falling.pop_front();
            continue;
        };
        for at in 0..reservation.tracks.len() {
            let q = reservation.tracks[at].q;
            let part = f64::from(q).min(budget.floor());
            budget -= part;
            reservation.set_q(at, q - part as u32, &mut endpoint.load);
        }
        if reservation.q > 0 {
            break;
        }
        ended += 1;
        endpoint.clock.falling.pop_front();
    }
    endpoint.clock.rest = if endpoint.clock.falling.is_empty() {
        0.0
    } else {
        budget
    };
    ended
}

fn end_tails(slab: &mut Slab, endpoint: &mut Endpoint, now: Time, rate: f64) {
    while let Some(tail) = endpoint.clock.tails.front_mut() {
        let at = tail.track as usize;
        let waits = slab
            .place(tail.id)
            .and_then(|place| slab.get_mut(place))
            .filter(|found| found.slot == Some(endpoint.id.slot) && !found.by_rate)
            .filter(|found| found.tracks[at].q > 0 && found.tracks[at].by_clock);
        let Some(reservation) = waits else {
            endpoint.clock.tails.pop_front();
            continue;
        };
        if tail.turn.is_none() && tail.mark <= endpoint.load.passed {
            tail.turn = Some(now);
        }
        let own = f64::from(reservation.tracks[at].q);
        let is_due = now.secs_since(tail.since) * rate >= tail.work as f64
            || tail.turn.is_some_and(|turn| now.secs_since(turn) * rate >= own);
        if !is_due {
            break;
        }
        reservation.set_q(at, 0, &mut endpoint.load);
        endpoint.clock.tails.pop_front();
    }
}
