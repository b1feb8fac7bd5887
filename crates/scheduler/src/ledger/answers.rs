//! How long answers become where nobody sees them: engines store each full block that they decode, and the first one's parent is
//! the last full block of the prompt.
//!
//! With n full prompt blocks of b tokens and k blocks stored after them, an answer to L tokens has between
//! `(n + k)·b − L + 1` and `(n + k + 1)·b − L` tokens (an engine never computes the last one). Answers whose prompts end
//! alike on one endpoint cannot be told apart before their first block; the oldest is taken to be ahead.

use std::collections::VecDeque;

use hashbrown::{HashMap, hash_map::Entry};
use lmetric_prefix::{BlockKey, SourceId};
use smallvec::SmallVec;

use super::{Claims, Reservation, ReservationId};

/// Ended answers that nobody asked about; the oldest go first.
const MOST_ENDED: usize = 1 << 16;

#[derive(Debug)]
struct Answer {
    slot: SourceId,
    /// Its last block so far, at first the prompt's.
    end: BlockKey,
    /// L.
    tokens: u32,
    /// b.
    block_tokens: u32,
    /// n + k.
    blocks: u32,
}

/// Answers that are followed, open or ended a moment ago (events come later than the end).
#[derive(Debug, Default)]
pub(crate) struct Answers {
    followed: HashMap<ReservationId, Answer>,
    /// Whose end a block is, the oldest first.
    ends: HashMap<(SourceId, BlockKey), SmallVec<[ReservationId; 1]>>,
    ended: VecDeque<ReservationId>,
}

impl Answers {
    /// Follows the reservation's answer; false where its blocks cannot tell: no events, several answers, or a prompt whose
    /// blocks are not all known.
    pub(crate) fn follow(&mut self, reservation: &Reservation) -> bool {
        self.forget(reservation.id);
        let (Some(slot), [track], 1) = (
            reservation.slot,
            reservation.tracks.as_slice(),
            reservation.weight,
        ) else {
            return false;
        };
        let Some(chain) = track.chain() else {
            return false;
        };
        let block_tokens = chain.block_size.get();
        let all_are_known = track.blocks() == track.tokens / block_tokens;
        if reservation.estimated || !reservation.live || !all_are_known {
            return false;
        }
        let answer = Answer {
            slot,
            end: chain.keys.last().copied().unwrap_or(chain.root),
            tokens: track.tokens,
            block_tokens,
            blocks: track.blocks(),
        };
        self.join(slot, answer.end, reservation.id);
        self.followed.insert(reservation.id, answer);
        true
    }

    pub(crate) fn is_followed(&self, id: ReservationId) -> bool {
        self.followed.contains_key(&id)
    }

    /// Blocks were stored on `slot`, in order as (parent, key). Those of a prompt that some reservation claims are none of
    /// an answer.
    pub(crate) fn stored(&mut self, slot: SourceId, claims: &Claims, blocks: &[(BlockKey, BlockKey)]) {
        if self.followed.is_empty() {
            return;
        }
        for (parent, key) in blocks {
            let Some(ids) = self.ends.get(&(slot, *parent)) else {
                continue;
            };
            if claims.any_on(*parent, *key) {
                continue;
            }
            let Some(id) = ids.first().copied() else {
                continue;
            };
            self.leave(slot, *parent, id);
            if let Some(answer) = self.followed.get_mut(&id) {
                answer.end = *key;
                answer.blocks += 1;
                self.join(slot, *key, id);
            }
        }
    }

    /// The request ended well; its length stays known until it is asked for.
    pub(crate) fn end(&mut self, id: ReservationId) {
        if !self.is_followed(id) {
            return;
        }
        self.ended.push_back(id);
        while self.ended.len() > MOST_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget(oldest);
        }
    }

    /// The estimate of an answer's length in tokens, at most half a block from the truth if every event has come. Not
    /// followed any longer.
    pub(crate) fn take(&mut self, id: ReservationId) -> Option<u32> {
        let answer = self.remove(id)?;
        if self.followed.is_empty() {
            self.ended.clear();
        }
        let end = u64::from(answer.blocks) * u64::from(answer.block_tokens);
        let least = (end + 1).saturating_sub(u64::from(answer.tokens)).max(1);
        let most = end + u64::from(answer.block_tokens) - u64::from(answer.tokens);
        u32::try_from(least.midpoint(most.max(least))).ok()
    }

    /// It is not followed any longer.
    pub(crate) fn forget(&mut self, id: ReservationId) {
        self.remove(id);
    }

    /// Nothing more can be known of this endpoint's answers: it is gone, restarted, or its events cannot be trusted.
    pub(crate) fn forget_all(&mut self, slot: SourceId) {
        let gone: Vec<ReservationId> = self
            .followed
            .iter()
            .filter(|(_, answer)| answer.slot == slot)
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: ReservationId) -> Option<Answer> {
        let answer = self.followed.remove(&id)?;
        self.leave(answer.slot, answer.end, id);
        Some(answer)
    }

    fn join(&mut self, slot: SourceId, end: BlockKey, id: ReservationId) {
        let ids = self.ends.entry((slot, end)).or_default();
        let place = ids.partition_point(|other| *other < id);
        ids.insert(place, id);
    }

    fn leave(&mut self, slot: SourceId, end: BlockKey, id: ReservationId) {
        if let Entry::Occupied(mut ids) = self.ends.entry((slot, end)) {
            ids.get_mut().retain(|other| *other != id);
            if ids.get().is_empty() {
                ids.remove();
            }
        }
    }
}
