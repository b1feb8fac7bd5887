//! One shard of the index: a flat table of 16-byte slots, open addressing with linear probing.
//!
//! Positions follow the order of the mixed keys and never wrap around: the slots past the last home
//! position take what is pushed over the end. Removal shifts the rest of the run back, towards lower
//! positions only, so there are no tombstones, and a sweep from the top downwards sees every entry
//! even when others are removed between its steps.

use super::holders::Holders;

/// Slots past the last home position.
const OVERHANG: usize = 16;
const SMALLEST: usize = 16;

/// A block and who holds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) key: u64,
    pub(super) holders: Holders,
}

const FREE: Slot = Slot {
    key: 0,
    holders: Holders::NOBODY,
};

#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    homes: usize,
    used: usize,
}

/// Spreads keys over the whole 64-bit range whatever they are; the shard is in the top bits.
pub(super) fn mix(key: u64) -> u64 {
    let folded = (key ^ key >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (folded ^ folded >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// Bits of the mixed key that choose the shard.
pub(super) const SHARD_BITS: u32 = 8;

fn home(key: u64, homes: usize) -> usize {
    let within = mix(key) << SHARD_BITS;
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

    /// Who holds `key`.
    pub(super) fn get(&self, key: u64) -> Holders {
        if self.used == 0 {
            return Holders::NOBODY;
        }
        for slot in &self.slots[home(key, self.homes)..] {
            if slot.key == key || slot.holders.is_nobody() {
                return slot.holders;
            }
        }
        Holders::NOBODY
    }

    /// Position of `key`.
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        if self.used == 0 {
            return None;
        }
        let from = home(key, self.homes);
        for (at, slot) in self.slots[from..].iter().enumerate() {
            if slot.holders.is_nobody() {
                return None;
            }
            if slot.key == key {
                return Some(from + at);
            }
        }
        None
    }

    pub(super) fn holders_mut(&mut self, at: usize) -> &mut Holders {
        &mut self.slots[at].holders
    }

    /// Adds a key that is not there. Returns true when positions changed because the table grew.
    pub(super) fn add(&mut self, slot: Slot) -> bool {
        let mut grown = false;
        if (self.used + 1) * 4 > self.homes * 3 {
            self.resize(self.homes + self.homes / 2);
            grown = true;
        }
        while !self.place(slot) {
            self.resize(self.homes + self.homes / 4 + 1);
            grown = true;
        }
        self.used += 1;
        grown
    }

    fn place(&mut self, slot: Slot) -> bool {
        let from = home(slot.key, self.homes);
        match self.slots[from..]
            .iter_mut()
            .find(|taken| taken.holders.is_nobody())
        {
            Some(free) => {
                *free = slot;
                true
            }
            None => false,
        }
    }

    /// Frees the slot at `at` and closes the gap.
    pub(super) fn remove_at(&mut self, at: usize) {
        let mut hole = at;
        let mut next = at + 1;
        while next < self.slots.len() && !self.slots[next].holders.is_nobody() {
            if home(self.slots[next].key, self.homes) <= hole {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next += 1;
        }
        self.slots[hole] = FREE;
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
        let old = std::mem::take(&mut self.slots);
        loop {
            self.homes = homes;
            self.slots = vec![FREE; homes + OVERHANG];
            let fits = old
                .iter()
                .filter(|slot| !slot.holders.is_nobody())
                .all(|&slot| self.place(slot));
            if fits {
                return;
            }
            homes += homes / 4 + 1;
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }
}
