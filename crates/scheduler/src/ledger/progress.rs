//! What an engine's store events say about the reservations that are open there.

use lmetric_prefix::BlockKey;
use smallvec::SmallVec;

use super::{
    Answers, Slab,
    account::{begin, claim_hits},
    claims::Claim,
    clock::Tail,
};
use crate::{Time, endpoint::Endpoint};

/// When blocks were computed that an engine tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// Since it told last.
    Now,
    /// Before; where they belong is known only now. They say nothing of its speed, nor of prompts that are new.
    Earlier,
}

/// Blocks were stored, in order as (parent, key). O(blocks + reservations that they advance).
pub(crate) fn stored(
    slab: &mut Slab,
    endpoint: &mut Endpoint,
    answers: &mut Answers,
    parts: &[(Computed, &[(BlockKey, BlockKey)])],
    now: Time,
) {
    for (_, blocks) in parts.iter().filter(|(computed, _)| *computed == Computed::Now) {
        endpoint.strangers += strangers(endpoint, blocks);
        if endpoint.load.q > endpoint.load.by_clock
            && let Some(size) = endpoint.spec.block_size
        {
            endpoint.rate.add(blocks.len() as u64 * u64::from(size.get()));
        }
    }
    claim_hits(slab, endpoint);
    for (_, blocks) in parts {
        answers.stored(endpoint.id.slot, &endpoint.claims, blocks);
    }
    if endpoint.claims.is_empty() {
        return;
    }
    let mut previous = None;
    for &(parent, key) in parts.iter().flat_map(|(_, blocks)| *blocks) {
        let begins_run = previous != Some(parent);
        if begins_run {
            child_stored(slab, endpoint, parent);
        }
        previous = Some(key);
        block_stored(slab, endpoint, key, begins_run, now);
    }
}

/// Runs of at least two blocks that no open reservation claims: prompts that we do not know. A lone block is decoded output as a rule.
fn strangers(endpoint: &Endpoint, blocks: &[(BlockKey, BlockKey)]) -> u64 {
    let (mut count, mut length, mut claimed, mut previous) = (0, 0, false, None);
    for &(parent, key) in blocks {
        if previous != Some(parent) {
            count += u64::from(length >= 2 && !claimed);
            (length, claimed) = (0, false);
        }
        previous = Some(key);
        length += 1;
        claimed |= endpoint.claims.on(key).next().is_some();
    }
    count + u64::from(length >= 2 && !claimed)
}

fn block_stored(slab: &mut Slab, endpoint: &mut Endpoint, key: BlockKey, begins_run: bool, now: Time) {
    let claims: SmallVec<[Claim; 8]> = endpoint.claims.on(key).collect();
    let fills = |slab: &Slab, claim: &Claim| {
        slab.get(claim.place)
            .is_some_and(|found| claim.position >= found.tracks[claim.track as usize].reach)
    };
    let fillers = claims.iter().filter(|claim| fills(slab, claim)).count();
    let mut own: SmallVec<[Claim; 8]> = SmallVec::new();
    for claim in claims {
        let is_filler = fills(slab, &claim);
        let Some(track) = slab
            .get(claim.place)
            .map(|found| &found.tracks[claim.track as usize])
        else {
            continue;
        };
        let is_own = match track.start {
            // a run that begins further on was hit up to there
            Some(_) => claim.position == track.reach || (begins_run && claim.position > track.reach),
            // at or before the predicted hit it is its own only if nobody else is filling it
            None => is_filler || fillers == 0,
        };
        if is_own {
            own.push(claim);
        }
    }
    for claim in own {
        reach(slab, endpoint, claim, now);
    }
}

/// The reservation's own block at `claim` was stored.
fn reach(slab: &mut Slab, endpoint: &mut Endpoint, claim: Claim, now: Time) {
    let Some(reservation) = slab.get_mut(claim.place) else {
        return;
    };
    begin(reservation, &mut endpoint.load);
    let at = claim.track as usize;
    let track = &mut reservation.tracks[at];
    if track.start.is_none() {
        track.start = Some(claim.position);
        track.reach = claim.position;
        if !reservation.by_rate && !reservation.output {
            let q = reservation.tracks[at].uncached();
            reservation.set_by_clock(at, false, &mut endpoint.load);
            reservation.set_q(at, q, &mut endpoint.load);
        }
    }
    let track = &mut reservation.tracks[at];
    track.reach = claim.position + 1;
    let low = std::mem::replace(&mut track.low, track.reach);
    for key in &track.keys()[low as usize..track.reach as usize] {
        endpoint.claims.remove(*key, claim.place, claim.track);
    }
    let q = track.q.min(track.left());
    let rest_unknown = q > 0 && track.reach == track.blocks() && !track.by_clock;
    reservation.set_q(at, q, &mut endpoint.load);
    if rest_unknown {
        reservation.set_by_clock(at, true, &mut endpoint.load);
        endpoint.clock.await_tail(Tail {
            id: reservation.id,
            track: claim.track,
            mark: 0,
            work: u64::from(q),
            since: now,
            turn: None,
        });
    }
}

/// A block was stored whose parent is `key`: prompts that end there are computed.
fn child_stored(slab: &mut Slab, endpoint: &mut Endpoint, key: BlockKey) {
    let ended: SmallVec<[Claim; 4]> = endpoint
        .claims
        .on(key)
        .filter(|claim| {
            slab.get(claim.place)
                .is_some_and(|found| claim.position + 1 == found.tracks[claim.track as usize].blocks())
        })
        .collect();
    for claim in ended {
        let Some(reservation) = slab.get_mut(claim.place) else {
            continue;
        };
        begin(reservation, &mut endpoint.load);
        let at = claim.track as usize;
        let track = &mut reservation.tracks[at];
        track.start = track.start.or(Some(track.blocks()));
        track.reach = track.blocks();
        let low = std::mem::replace(&mut track.low, track.reach);
        for key in &track.keys()[low as usize..] {
            endpoint.claims.remove(*key, claim.place, claim.track);
        }
        reservation.set_q(at, 0, &mut endpoint.load);
    }
}
