//! Optimistic holders: blocks of an open reservation that are not stored yet count as held by its endpoint.
//!
//! The overlay is no structure of its own: a block is in it exactly while an open reservation claims it at or beyond its
//! reach. Keys are chained, so the outstanding blocks of one prompt form a run without holes, and how far another
//! prompt shares it is found by halving. The caller holds the scheduler's lock, so the overlay is as it was *before* the
//! index is read: a block that an event moves from here to there is seen in at least one.

use lmetric_prefix::{BlockKey, PrefixIndex, SourceId};

use super::{Claims, Slab};

/// How many leading `keys` the endpoint at `slot` holds or is about to fill, if it holds the first `run`.
/// O((fillers met + 1) · (look-up + log blocks)).
pub(crate) fn held_run(
    slab: &Slab,
    claims: &Claims,
    index: &PrefixIndex,
    slot: SourceId,
    keys: &[BlockKey],
    run: usize,
) -> usize {
    let mut at = run;
    if claims.is_empty() {
        return at;
    }
    while at < keys.len() {
        let Some(end) = filled_run(slab, claims, keys, at) else {
            break;
        };
        at = index.run_from(slot, keys, end);
    }
    at
}

/// End of the run of outstanding blocks that begins at `at`, if some reservation fills that block.
fn filled_run(slab: &Slab, claims: &Claims, keys: &[BlockKey], at: usize) -> Option<usize> {
    claims.on(keys[at]).find_map(|claim| {
        let track = &slab.get(claim.place)?.tracks[claim.track as usize];
        (claim.position >= track.reach).then(|| shared(track.keys(), keys, at))
    })
}

/// Length of the common prefix of two chains that agree on block `at`. Chained keys never agree again once they differ.
fn shared(left: &[BlockKey], right: &[BlockKey], at: usize) -> usize {
    let (mut agree, mut differ) = (at + 1, left.len().min(right.len()));
    while agree < differ {
        let middle = agree + (differ - agree) / 2;
        if left[middle] == right[middle] {
            agree = middle + 1;
        } else {
            differ = middle;
        }
    }
    agree
}
