//! Optimistic holders: blocks of an open reservation that are not stored yet count as held by its endpoint.
//!
//! The overlay is no structure of its own: a block is in it exactly while an open reservation claims it at or beyond its
//! reach. Keys are chained, so the outstanding blocks of one prompt form a run without holes, and how far another
//! prompt shares it is found by halving. The caller holds the scheduler's lock, so the overlay is as it was *before* the
//! index is read: a block that an event moves from here to there is seen in at least one.

use lmetric_prefix::{BlockKey, PrefixIndex, SourceId};

use super::Claims;

/// How many leading `keys` the endpoint at `slot` holds or is about to fill, if it holds the first `run`.
/// O((fillers met + 1) · (claimed prompts + look-up + log blocks)).
pub(crate) fn held_run(
    claims: &Claims,
    index: &PrefixIndex,
    slot: SourceId,
    keys: &[BlockKey],
    run: usize,
) -> usize {
    let mut at = run;
    while at < keys.len() {
        let Some(end) = claims.filled(keys, at) else {
            break;
        };
        at = index.run_from(slot, keys, end);
    }
    at
}
