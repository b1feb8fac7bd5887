//! The set of sources that hold one block, in eight bytes.
//!
//! Four 16-bit lanes. Lanes that never decrease are up to four distinct ids in order, the last one
//! repeated to fill the rest, so every id from 0 to 65,535 can be held inline. A first lane greater
//! than the second cannot be such a list and marks the two other states: nobody, or a number in the
//! arena of bitmaps.

use super::{SourceId, arena::Arena};

/// Most holders that fit inline.
const INLINE: usize = 4;
const NOBODY: u64 = 0x0000_FFFF;
const SPILLED: u64 = 0x0000_0001;

/// Who holds a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holders(u64);

/// What a [`Holders`] value stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// No source; the slot is free.
    Nobody,
    /// Up to four ids in ascending order, the last one repeated.
    Inline([u16; INLINE]),
    /// Number of a bitmap in the arena.
    Bitmap(u32),
}

impl Holders {
    pub(super) const NOBODY: Self = Self(NOBODY);

    pub(super) fn one(source: SourceId) -> Self {
        Self::inline([source.0; INLINE])
    }

    fn inline(lanes: [u16; INLINE]) -> Self {
        let [a, b, c, d] = lanes.map(u64::from);
        Self(a | b << 16 | c << 32 | d << 48)
    }

    pub(super) fn is_nobody(self) -> bool {
        self.0 == NOBODY
    }

    pub(super) fn view(self) -> View {
        let lane = |n: u32| (self.0 >> (16 * n)) as u16;
        if lane(0) <= lane(1) {
            View::Inline([lane(0), lane(1), lane(2), lane(3)])
        } else if self.is_nobody() {
            View::Nobody
        } else {
            View::Bitmap((self.0 >> 32) as u32)
        }
    }

    /// Whether `source` is in the set.
    pub(super) fn contains(self, source: SourceId, arena: &Arena) -> bool {
        match self.view() {
            View::Nobody => false,
            View::Inline(lanes) => lanes.contains(&source.0),
            View::Bitmap(number) => arena.contains(number, source),
        }
    }

    /// The set with `source` in it; `None` when it was there already.
    pub(super) fn with(self, source: SourceId, arena: &mut Arena) -> Option<Self> {
        match self.view() {
            View::Nobody => Some(Self::one(source)),
            View::Inline(lanes) => {
                if lanes.contains(&source.0) {
                    return None;
                }
                let distinct = distinct(lanes);
                if distinct == INLINE {
                    let number = arena.allocate();
                    for id in lanes.into_iter().chain([source.0]) {
                        arena.insert(number, SourceId(id));
                    }
                    return Some(Self(SPILLED | u64::from(number) << 32));
                }
                let mut ids = [0; INLINE];
                ids[..distinct].copy_from_slice(&lanes[..distinct]);
                ids[distinct] = source.0;
                Some(Self::sorted(ids, distinct + 1))
            }
            View::Bitmap(number) => arena.insert(number, source).then_some(self),
        }
    }

    /// The set without `source`; `None` when it was not there. A bitmap that is down to three holders
    /// goes back to the arena.
    pub(super) fn without(self, source: SourceId, arena: &mut Arena) -> Option<Self> {
        match self.view() {
            View::Nobody => None,
            View::Inline(lanes) => {
                let at = lanes.iter().position(|&id| id == source.0)?;
                let distinct = distinct(lanes);
                if distinct == 1 {
                    return Some(Self::NOBODY);
                }
                let mut ids = lanes;
                ids.copy_within(at + 1.., at);
                Some(Self::sorted(ids, distinct - 1))
            }
            View::Bitmap(number) => {
                if !arena.remove(number, source) {
                    return None;
                }
                if arena.count(number) >= INLINE {
                    return Some(self);
                }
                let mut ids = [0; INLINE];
                let mut distinct = 0;
                for id in arena.members(number) {
                    ids[distinct] = id;
                    distinct += 1;
                }
                arena.release(number);
                Some(Self::sorted(ids, distinct))
            }
        }
    }

    /// The first `distinct` of `ids` (at least one), put in order.
    fn sorted(mut ids: [u16; INLINE], distinct: usize) -> Self {
        ids[..distinct].sort_unstable();
        let last = ids[distinct - 1];
        ids[distinct..].fill(last);
        Self::inline(ids)
    }
}

fn distinct(lanes: [u16; INLINE]) -> usize {
    1 + lanes.windows(2).filter(|pair| pair[0] < pair[1]).count()
}
