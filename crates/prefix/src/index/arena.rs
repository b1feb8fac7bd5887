//! Bitmaps of the blocks that more than four sources hold, in one allocation with a free list.

use super::SourceId;

/// An arena of at least so many bitmaps gives its memory back when none is in use.
const KEPT: usize = 256;

/// Equal-sized bitmaps over source ids; each is preceded by the number of its members.
#[derive(Debug)]
pub(super) struct Arena {
    words: Vec<u64>,
    free: Vec<u32>,
    /// Words of one bitmap, without its count.
    width: usize,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self {
            words: Vec::new(),
            free: Vec::new(),
            width: 1,
        }
    }

    fn stride(&self) -> usize {
        self.width + 1
    }

    fn start(&self, number: u32) -> usize {
        number as usize * self.stride()
    }

    /// Makes room for ids up to `source`. Copies the arena when its bitmaps must become wider, which
    /// happens when the highest id outgrows a power of two.
    pub(super) fn reserve_id(&mut self, source: SourceId) {
        let needed = usize::from(source.0) / 64 + 1;
        if needed <= self.width {
            return;
        }
        let wider = needed.next_power_of_two();
        let mut words = Vec::with_capacity(self.words.len() / self.stride() * (wider + 1));
        for old in self.words.chunks_exact(self.stride()) {
            words.extend_from_slice(old);
            words.resize(words.len() + wider - self.width, 0);
        }
        self.words = words;
        self.width = wider;
    }

    /// An empty bitmap.
    pub(super) fn allocate(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        let number = self.words.len() / self.stride();
        self.words.resize(self.words.len() + self.stride(), 0);
        u32::try_from(number).expect("four billion bitmaps do not fit in memory")
    }

    /// Gives a bitmap back.
    pub(super) fn release(&mut self, number: u32) {
        let start = self.start(number);
        let stride = self.stride();
        self.words[start..start + stride].fill(0);
        self.free.push(number);
        if self.free.len() >= KEPT && self.free.len() * stride == self.words.len() {
            self.words = Vec::new();
            self.free = Vec::new();
        }
    }

    /// The bitmap's words, lowest ids first.
    pub(super) fn bits(&self, number: u32) -> &[u64] {
        let start = self.start(number);
        &self.words[start + 1..start + self.stride()]
    }

    pub(super) fn count(&self, number: u32) -> usize {
        self.words[self.start(number)] as usize
    }

    pub(super) fn contains(&self, number: u32, source: SourceId) -> bool {
        let (word, bit) = place(source);
        self.bits(number).get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// True when `source` was not in it.
    pub(super) fn insert(&mut self, number: u32, source: SourceId) -> bool {
        let (word, bit) = place(source);
        let start = self.start(number);
        let bits = &mut self.words[start + 1 + word];
        let new = *bits & bit == 0;
        *bits |= bit;
        self.words[start] += u64::from(new);
        new
    }

    /// True when `source` was in it.
    pub(super) fn remove(&mut self, number: u32, source: SourceId) -> bool {
        if !self.contains(number, source) {
            return false;
        }
        let (word, bit) = place(source);
        let start = self.start(number);
        self.words[start + 1 + word] &= !bit;
        self.words[start] -= 1;
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
        self.words.capacity() * size_of::<u64>() + self.free.capacity() * size_of::<u32>()
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
