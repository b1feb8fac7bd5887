//! Bitmaps of the blocks that more than four sources hold, in one allocation with a free list.

use super::SourceId;

/// An arena of at least so many bitmaps gives its memory back when none is in use.
const KEPT: usize = 256;
/// No bitmap.
const NONE: u32 = u32::MAX;

/// Equal-sized bitmaps over source ids.
#[derive(Debug)]
pub(super) struct Arena {
    words: Vec<u64>,
    /// The last one given back; the first word of each such names the one before.
    free: u32,
    /// Bitmaps in use.
    used: usize,
    /// Words of one bitmap.
    width: usize,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self {
            words: Vec::new(),
            free: NONE,
            used: 0,
            width: 1,
        }
    }

    fn start(&self, number: u32) -> usize {
        number as usize * self.width
    }

    /// Makes room for ids up to `source`. Copies the arena when its bitmaps must become wider, which
    /// happens when the highest id outgrows a power of two.
    pub(super) fn reserve_id(&mut self, source: SourceId) {
        let needed = usize::from(source.0) / 64 + 1;
        if needed <= self.width {
            return;
        }
        let wider = needed.next_power_of_two();
        let mut words = Vec::with_capacity(self.words.len() / self.width * wider);
        for old in self.words.chunks_exact(self.width) {
            words.extend_from_slice(old);
            words.resize(words.len() + wider - self.width, 0);
        }
        self.words = words;
        self.width = wider;
    }

    /// An empty bitmap.
    pub(super) fn allocate(&mut self) -> u32 {
        self.used += 1;
        if self.free != NONE {
            let number = self.free;
            let start = self.start(number);
            self.free = std::mem::take(&mut self.words[start]) as u32;
            return number;
        }
        let number = self.words.len() / self.width;
        if self.words.len() + self.width > self.words.capacity() {
            self.words
                .reserve_exact((self.words.len() / 4).max(16 * self.width));
        }
        self.words.resize(self.words.len() + self.width, 0);
        u32::try_from(number)
            .ok()
            .filter(|&number| number != NONE)
            .expect("four billion bitmaps do not fit in memory")
    }

    /// Gives a bitmap back.
    pub(super) fn release(&mut self, number: u32) {
        self.used -= 1;
        if self.used == 0 && self.words.len() >= KEPT * self.width {
            self.words = Vec::new();
            self.free = NONE;
            return;
        }
        let start = self.start(number);
        self.words[start] = u64::from(self.free);
        self.words[start + 1..start + self.width].fill(0);
        self.free = number;
    }

    /// The bitmap's words, lowest ids first.
    pub(super) fn bits(&self, number: u32) -> &[u64] {
        let start = self.start(number);
        &self.words[start..start + self.width]
    }

    /// How many are in it.
    pub(super) fn count(&self, number: u32) -> usize {
        let ones = self.bits(number).iter().map(|word| word.count_ones());
        ones.sum::<u32>() as usize
    }

    pub(super) fn contains(&self, number: u32, source: SourceId) -> bool {
        let (word, bit) = place(source);
        self.bits(number).get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// True when `source` was not in it.
    pub(super) fn insert(&mut self, number: u32, source: SourceId) -> bool {
        let (word, bit) = place(source);
        let start = self.start(number);
        let bits = &mut self.words[start + word];
        let new = *bits & bit == 0;
        *bits |= bit;
        new
    }

    /// True when `source` was in it.
    pub(super) fn remove(&mut self, number: u32, source: SourceId) -> bool {
        if !self.contains(number, source) {
            return false;
        }
        let (word, bit) = place(source);
        let start = self.start(number);
        self.words[start + word] &= !bit;
        true
    }

    /// Ids in ascending order.
    pub(super) fn members(&self, number: u32) -> impl Iterator<Item = u16> + '_ {
        self.bits(number)
            .iter()
            .enumerate()
            .flat_map(|(word, &bits)| ones(bits).map(move |bit| (word * 64 + bit) as u16))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

/// Word and bit of `source` in a bitmap.
pub(super) fn place(source: SourceId) -> (usize, u64) {
    (usize::from(source.0) / 64, 1 << (source.0 % 64))
}

/// Positions of the set bits, lowest first.
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let bit = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            bit
        })
    })
}
