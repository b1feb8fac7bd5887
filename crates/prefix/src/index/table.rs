//! One shard of the index: a flat table of 16-byte slots, open addressing with linear probing.
//!
//! Keys are kept mixed, and slots lie in the order of the mixed keys: a search ends at the first greater one, so
//! that a table may be 17⁄20 full and a miss costs as little as a hit. Positions never wrap around: the slots past
//! the last home position take what is pushed over the end. Removal shifts the rest of the run back, so there are no
//! tombstones; a table that grows is copied from front to back.

use super::holders::Holders;

/// Slots past the last home position.
const OVERHANG: usize = 24;
const SMALLEST: usize = 16;
/// Slots within which most searches end.
const NEAR: usize = 9;

/// A block and who holds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The block's key as [`mix`] gives it.
    pub(super) mixed: u64,
    pub(super) holders: Holders,
}

const FREE: Slot = Slot {
    mixed: 0,
    holders: Holders::NOBODY,
};

/// What became of the other slots when one was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// Those from the first position up to the second went one further.
    Up(usize, usize),
    /// All have other positions.
    All,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    homes: usize,
    used: usize,
}

/// Spreads keys over the whole 64-bit range whatever they are, no two to the same number; the shard is in the top bits.
pub(super) fn mix(key: u64) -> u64 {
    let folded = (key ^ key >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (folded ^ folded >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// Bits of the mixed key that choose the shard.
pub(super) const SHARD_BITS: u32 = 8;

fn home(mixed: u64, homes: usize) -> usize {
    let within = mixed << SHARD_BITS;
    ((u128::from(within) * homes as u128) >> 64) as usize
}

impl Table {
    /// Slots in the table, for sweeps.
    pub(super) fn extent(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn slot(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    /// Something of the slots where the search for the block begins and where it may end.
    pub(super) fn fetch(&self, mixed: u64) -> u64 {
        let from = home(mixed, self.homes);
        let near = self.slots.get(from..from + NEAR);
        near.map_or(0, |slots| {
            slots[0].mixed ^ slots[NEAR / 2].mixed ^ slots[NEAR - 1].mixed
        })
    }

    /// Who holds the block.
    pub(super) fn get(&self, mixed: u64) -> Holders {
        match self.find(mixed) {
            Ok(at) => self.slots[at].holders,
            Err(_) => Holders::NOBODY,
        }
    }

    /// Position of the block, or where it belongs.
    pub(super) fn find(&self, mixed: u64) -> Result<usize, usize> {
        let from = home(mixed, self.homes);
        let run = self.slots.get(from..).unwrap_or_default();
        for (at, slot) in run.iter().enumerate() {
            if slot.mixed >= mixed || slot.holders.is_nobody() {
                let here = slot.mixed == mixed && !slot.holders.is_nobody();
                return if here { Ok(from + at) } else { Err(from + at) };
            }
        }
        Err(self.slots.len())
    }

    pub(super) fn holders_mut(&mut self, at: usize) -> &mut Holders {
        &mut self.slots[at].holders
    }

    /// Adds a block that is not there and belongs at `at`. Tables of unlike numbers grow by unlike amounts, so that
    /// they do not all grow at once.
    pub(super) fn add(&mut self, at: usize, slot: Slot, number: usize) -> Moved {
        let full = (self.used + 1) * 20 > self.homes * 17;
        if !full && let Some(moved) = self.put(at, slot) {
            return moved;
        }
        let mut more = if full { 2 + number % 3 } else { 8 };
        loop {
            self.resize(self.homes + self.homes / more + 1);
            let at = self.find(slot.mixed).unwrap_or_else(|at| at);
            if self.put(at, slot).is_some() {
                return Moved::All;
            }
            more = 8;
        }
    }

    /// `None` when the slots end before one is free.
    fn put(&mut self, at: usize, slot: Slot) -> Option<Moved> {
        let taken = self.slots.get(at..)?;
        let free = at + taken.iter().position(|slot| slot.holders.is_nobody())?;
        self.slots.copy_within(at..free, at + 1);
        self.slots[at] = slot;
        self.used += 1;
        Some(Moved::Up(at, free))
    }

    /// Frees the slot at `at` and closes the gap.
    pub(super) fn remove_at(&mut self, at: usize) {
        let homes = self.homes;
        let stays =
            |(next, slot): &(usize, &Slot)| slot.holders.is_nobody() || home(slot.mixed, homes) == *next;
        let mut after = self.slots.iter().enumerate().skip(at + 1);
        let end = after.find(stays).map_or(self.slots.len(), |(next, _)| next);
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = FREE;
        self.used -= 1;
    }

    /// Gives memory back when the table is mostly empty. Returns true when positions changed.
    pub(super) fn shrink(&mut self) -> bool {
        if self.used == 0 {
            let had_slots = !self.slots.is_empty();
            *self = Self::default();
            return had_slots;
        }
        let wanted = (self.used * 2).max(SMALLEST);
        if wanted * 2 > self.homes {
            return false;
        }
        self.resize(wanted);
        true
    }

    fn resize(&mut self, homes: usize) {
        let mut homes = homes.max(SMALLEST);
        loop {
            if let Some(slots) = self.spread(homes) {
                self.slots = slots;
                self.homes = homes;
                return;
            }
            homes += homes / 8 + 1;
        }
    }

    /// The slots with so many home positions; `None` when some would be pushed over the end.
    fn spread(&self, homes: usize) -> Option<Vec<Slot>> {
        let mut slots = vec![FREE; homes + OVERHANG];
        let mut next = 0;
        for slot in self.slots.iter().filter(|slot| !slot.holders.is_nobody()) {
            next = home(slot.mixed, homes).max(next);
            *slots.get_mut(next)? = *slot;
            next += 1;
        }
        Some(slots)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }
}
