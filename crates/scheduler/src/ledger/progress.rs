//! What an engine's store events say about the reservations that are open there.

use lmetric_prefix::BlockKey;
use smallvec::SmallVec;

use super::{Answers, Slab, account::begin, claims::Claim, clock::Tail};
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
    for (_, blocks) in parts {
        answers.stored(endpoint.id.slot, &endpoint.claims, blocks);
    }
    if endpoint.claims.is_empty() {
        return;
    }
    let blocks: SmallVec<[(BlockKey, BlockKey); 64]> =
        parts.iter().flat_map(|(_, blocks)| *blocks).copied().collect();
    for run in blocks.chunk_by(|(_, before), (parent, _)| before == parent) {
        run_stored(slab, endpoint, run, now);
    }
}

/// Runs of at least two blocks that no open reservation claims: prompts that we do not know. A lone block is decoded output as a rule.
fn strangers(endpoint: &Endpoint, blocks: &[(BlockKey, BlockKey)]) -> u64 {
    blocks
        .chunk_by(|(_, before), (parent, _)| before == parent)
        .filter(|run| run.len() >= 2 && !is_claimed(endpoint, run))
        .count() as u64
}

/// Whether somebody claims a block of a run.
fn is_claimed(endpoint: &Endpoint, run: &[(BlockKey, BlockKey)]) -> bool {
    let claims = &endpoint.claims;
    let Some(position) = run
        .first()
        .and_then(|(parent, first)| claims.position(*parent, *first))
    else {
        return false;
    };
    let last = position + run.len() as u32 - 1;
    claims
        .sharing(position, run)
        .any(|(claim, end)| claims.low(claim) < end.min(last + 1))
}

/// Blocks that follow each other were stored.
fn run_stored(slab: &mut Slab, endpoint: &mut Endpoint, run: &[(BlockKey, BlockKey)], now: Time) {
    let (Some(&(parent, first)), Some(&(_, last))) = (run.first(), run.last()) else {
        return;
    };
    let position = endpoint.claims.position(parent, first);
    child_stored(slab, endpoint, parent);
    let end = position.map(|position| position + run.len() as u32 - 1);
    endpoint.claims.came_to(parent, last, end);
    let Some(position) = position else {
        return;
    };
    let sharing: SmallVec<[(Claim, u32); 8]> = endpoint.claims.sharing(position, run).collect();
    for at in 0..run.len() as u32 {
        block_stored(slab, endpoint, &sharing, position + at, at == 0, now);
    }
    for (claim, _) in sharing {
        follow(slab, endpoint, claim);
    }
}

/// Claims what its prompt may still advance over.
fn follow(slab: &Slab, endpoint: &mut Endpoint, claim: Claim) {
    let track = slab
        .get(claim.place)
        .map(|found| &found.tracks[claim.track as usize]);
    if let Some(track) = track
        && let Some(chain) = track.chain()
    {
        endpoint
            .claims
            .set(claim.place, claim.track, chain, track.low(), track.reach);
    }
}

/// The block at `position` was stored; `sharing` are the prompts that it may be of, and where each of them ends to be.
fn block_stored(
    slab: &mut Slab,
    endpoint: &mut Endpoint,
    sharing: &[(Claim, u32)],
    position: u32,
    begins_run: bool,
    now: Time,
) {
    let claims = sharing.iter().filter_map(|(claim, end)| {
        let track = &slab.get(claim.place)?.tracks[claim.track as usize];
        let claim = Claim { position, ..*claim };
        (track.low() <= position && position < *end).then_some((claim, track))
    });
    let is_filled = claims.clone().any(|(_, track)| position >= track.reach);
    let own: SmallVec<[Claim; 8]> = claims
        .filter(|(_, track)| match track.start {
            // a run that begins further on was hit up to there
            Some(_) => position == track.reach || (begins_run && position > track.reach),
            // at or before the predicted hit it is its own only if nobody else is filling it
            None => position >= track.reach || !is_filled,
        })
        .map(|(claim, _)| claim)
        .collect();
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
    let ended: SmallVec<[Claim; 4]> = endpoint.claims.ending(key).collect();
    for claim in ended {
        let Some(reservation) = slab.get_mut(claim.place) else {
            continue;
        };
        begin(reservation, &mut endpoint.load);
        let at = claim.track as usize;
        let track = &mut reservation.tracks[at];
        track.start = track.start.or(Some(track.blocks()));
        track.reach = track.blocks();
        endpoint.claims.remove(claim.place, claim.track);
        reservation.set_q(at, 0, &mut endpoint.load);
    }
}
