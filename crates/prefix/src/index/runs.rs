//! How many leading blocks of a chain each source holds.
//!
//! A gapless source that holds a block holds every block before it, so the end of its run can be
//! bracketed by doubling steps and then found by bisection. All such candidates are searched together:
//! a look-up at one depth splits the set into those that hold the block and those that do not, and
//! as long as holder sets repeat along the chain nothing splits. Sources with holes are walked, also
//! together, block by block.

use smallvec::SmallVec;

use super::{Holders, PrefixIndex, SourceId, holders::View, place};
use crate::BlockKey;

/// A set of source ids, as wide as the highest id needs.
trait Members: Clone {
    fn nobody(words: usize) -> Self;
    fn words(&self) -> &[u64];
    fn words_mut(&mut self) -> &mut [u64];

    fn is_empty(&self) -> bool {
        self.words().iter().all(|&word| word == 0)
    }
}

impl<const N: usize> Members for [u64; N] {
    fn nobody(_: usize) -> Self {
        [0; N]
    }

    fn words(&self) -> &[u64] {
        self
    }

    fn words_mut(&mut self) -> &mut [u64] {
        self
    }
}

impl Members for Vec<u64> {
    fn nobody(words: usize) -> Self {
        vec![0; words]
    }

    fn words(&self) -> &[u64] {
        self
    }

    fn words_mut(&mut self) -> &mut [u64] {
        self
    }
}

/// Run lengths by source id.
type Runs = SmallVec<[u32; 128]>;

impl PrefixIndex {
    /// For each candidate the number of leading `keys` that it holds; `runs` is cleared and filled in the
    /// candidates' order. Nothing is allocated beyond growing `runs` while ids stay below 128, and nothing for
    /// each look-up while they stay below 1,024.
    ///
    /// O(log `keys`) look-ups per distinct run length among gapless candidates, O(longest run) look-ups
    /// for the others.
    pub fn longest_runs(&self, keys: &[BlockKey], candidates: &[SourceId], runs: &mut Vec<u32>) {
        match self.sources.len().div_ceil(64) {
            0..=1 => self.runs_in::<[u64; 1]>(keys, candidates, runs),
            2..=4 => self.runs_in::<[u64; 4]>(keys, candidates, runs),
            5..=16 => self.runs_in::<[u64; 16]>(keys, candidates, runs),
            _ => self.runs_in::<Vec<u64>>(keys, candidates, runs),
        }
    }

    fn runs_in<S: Members>(&self, keys: &[BlockKey], candidates: &[SourceId], runs: &mut Vec<u32>) {
        runs.clear();
        let known = self.sources.len();
        let width = known.div_ceil(64);
        let (mut gapless, mut holey) = (S::nobody(width), S::nobody(width));
        for &candidate in candidates {
            let source = self.source(candidate);
            if source.held == 0 || source.masked {
                continue;
            }
            let (word, bit) = place(candidate);
            let set = if source.gapless { &mut gapless } else { &mut holey };
            set.words_mut()[word] |= bit;
        }
        let mut found: Runs = SmallVec::from_elem(0, known);
        self.gallop(keys, gapless, &mut found);
        self.walk(keys, holey, &mut found);
        runs.extend(
            candidates
                .iter()
                .map(|source| found.get(usize::from(source.0)).copied().unwrap_or(0)),
        );
    }

    /// First position at or after `start` whose key `source` does not hold (at most `keys.len()`).
    /// O(log) look-ups for a gapless source, O(answer − start) otherwise.
    pub fn run_from(&self, source: SourceId, keys: &[BlockKey], start: usize) -> usize {
        let known = self.source(source);
        if known.masked || known.held == 0 {
            return start.min(keys.len());
        }
        let held = |at: usize| self.holders(keys[at]).contains(source, &self.arena);
        if !known.gapless {
            return (start..keys.len()).find(|&at| !held(at)).unwrap_or(keys.len());
        }
        // `low` blocks are held (or lie before `start`), block `high` is not
        let (mut low, mut high) = (start.min(keys.len()), keys.len());
        let mut step = 1;
        while low < high {
            let probe = (low + step - 1).min(high - 1);
            if held(probe) {
                low = probe + 1;
                step *= 2;
            } else {
                high = probe;
                break;
            }
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if held(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn gallop<S: Members>(&self, keys: &[BlockKey], mut set: S, found: &mut Runs) {
        let mut low = 0;
        let mut step = 1;
        while !set.is_empty() {
            if low == keys.len() {
                record(&set, low, found);
                return;
            }
            let probe = (low + step - 1).min(keys.len() - 1);
            let (with, without) = self.split(&set, keys[probe]);
            if !without.is_empty() {
                self.bisect(keys, low, probe, without, found);
            }
            set = with;
            low = probe + 1;
            step *= 2;
        }
    }

    /// Everyone in `set` holds the first `low` blocks and does not hold block `high`.
    fn bisect<S: Members>(
        &self,
        keys: &[BlockKey],
        mut low: usize,
        mut high: usize,
        mut set: S,
        found: &mut Runs,
    ) {
        while low < high {
            let middle = low + (high - low) / 2;
            let (with, without) = self.split(&set, keys[middle]);
            if with.is_empty() {
                high = middle;
            } else if without.is_empty() {
                low = middle + 1;
            } else {
                self.bisect(keys, low, middle, without, found);
                low = middle + 1;
                set = with;
            }
        }
        record(&set, low, found);
    }

    fn walk<S: Members>(&self, keys: &[BlockKey], mut set: S, found: &mut Runs) {
        for (at, &key) in keys.iter().enumerate() {
            if set.is_empty() {
                return;
            }
            let (with, without) = self.split(&set, key);
            record(&without, at, found);
            set = with;
        }
        record(&set, keys.len(), found);
    }

    /// Those of `set` that hold `key`, and the rest.
    fn split<S: Members>(&self, set: &S, key: BlockKey) -> (S, S) {
        let mut with = S::nobody(set.words().len());
        let mut without = set.clone();
        match Holders::view(self.holders(key)) {
            View::Nobody => {}
            View::Inline(lanes) => {
                for id in lanes {
                    let (word, bit) = place(SourceId(id));
                    if let Some(members) = set.words().get(word) {
                        with.words_mut()[word] |= members & bit;
                    }
                }
            }
            View::Bitmap(number) => {
                let members = set.words().iter().zip(self.arena.bits(number));
                for (with, (members, holders)) in with.words_mut().iter_mut().zip(members) {
                    *with = members & holders;
                }
            }
        }
        for (without, with) in without.words_mut().iter_mut().zip(with.words()) {
            *without &= !with;
        }
        (with, without)
    }
}

fn record<S: Members>(set: &S, run: usize, found: &mut Runs) {
    for (word, &bits) in set.words().iter().enumerate() {
        for bit in super::arena::ones(bits) {
            found[word * 64 + bit] = run as u32;
        }
    }
}
